// Jinja2's own results, row by row. The file is not this project's: the test is skipped unless
// PELTON_GOLDEN_CHAT names the folder that holds it.
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "jinja/template.h"

namespace pelton::jinja {
namespace {

TEST(JinjaGolden, RowsAreAsJinjaHasThem) {
  const char* const folder = std::getenv("PELTON_GOLDEN_CHAT");
  if (folder == nullptr) GTEST_SKIP() << "PELTON_GOLDEN_CHAT is not set";
  const std::string text = base::read_file(std::string(folder) + "/jinja.json", 1 << 24).value();
  const Json rows = Json::parse(text).value();
  // What is not there (docs/chat_templates.md): `lipsum`, and the row that a number is beyond 64
  // bits in.
  const std::set<std::string> left_out = {
      "{{ dict(a=1, b='x') }}{{ lipsum is defined }}{{ joiner is defined }}", "{{ x|tojson }}"};
  for (const Json& row : rows.as_array()) {
    const std::string source = row.string("template").value();
    SCOPED_TRACE(source);
    const Result<Template> made = Template::compile(source);
    const Dict context = Value::from_json(*row.find("context")).as_dict();
    const Template::Options options{.limits = {}, .unix_seconds = 1'772'719'629};
    const Result<Text> result =
        made.ok() ? made->render(context, options) : Result<Text>(made.error());
    if (row.find("error") != nullptr) {
      EXPECT_FALSE(result.ok());
    } else if (!left_out.contains(source)) {
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(result->bytes(), row.string("expected").value());
    }
  }
}

}  // namespace
}  // namespace pelton::jinja
