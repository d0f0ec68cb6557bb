#include "jinja/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jinja/template.h"

namespace pelton::jinja {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TemplateFeatures, AreWhatTheTemplateNames) {
  const Features features = Template::compile(R"({%- macro turn(role, text='') %}{{ role ~ text }}
{%- endmacro %}
{%- set ns = namespace(first=true) %}
{%- for m in messages if m.role is not none %}
{%- if loop.first and not m.content.startswith('x') %}{{ raise_exception('no') }}{% endif %}
{{- turn(m.role, m.content | trim) }}
{%- endfor %}
{%- if tools is defined and enable_thinking %}{{ tools | map('upper') | tojson(indent=width) }}
{%- endif %})")
                                .value()
                                .features();
  EXPECT_THAT(features.variables, ElementsAre("enable_thinking", "messages", "tools", "width"));
  EXPECT_THAT(features.filters, ElementsAre("map", "tojson", "trim"));
  EXPECT_THAT(features.tests, ElementsAre("defined", "none"));
  EXPECT_THAT(features.functions, ElementsAre("namespace", "raise_exception"));
  EXPECT_THAT(features.methods, ElementsAre("startswith"));
  EXPECT_THAT(features.statements, ElementsAre("for", "if", "macro", "set"));
  EXPECT_THAT(Template::compile("plain").value().features().variables, IsEmpty());
}

// As Llama 3.1's template does: a variable that is given a value where it has none is read.
TEST(TemplateFeatures, NamesAreThoseOfExpressionsAlone) {
  const Features features = Template::compile(
                                "{# enable_thinking #}{{ 'documents' }} thinking "
                                "{% if not tools is defined %}{% set tools = none %}"
                                "{% endif %}{{ m.effort }}")
                                .value()
                                .features();
  EXPECT_THAT(features.names, ElementsAre("m", "tools"));
  EXPECT_THAT(features.variables, ElementsAre("m"));
}

}  // namespace
}  // namespace pelton::jinja
