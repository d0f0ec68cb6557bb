#include "jinja/template.h"

#include <fmt/format.h>

#include "jinja/evaluator.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"

namespace pelton::jinja {

Result<Template> Template::compile(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return failure(fmt::format("a template of more than {} bytes", kSourceBytesMax));
  }
  TRY_ASSIGN(Body body, parse(source));
  return Template(std::make_shared<const Body>(std::move(body)));
}

Result<Text> Template::render(const Dict& context, const Options& options) const {
  return Evaluator(options.limits, options.unix_seconds).run(*body_, context);
}

Features Template::features() const {
  return features_of(*body_);
}

}  // namespace pelton::jinja
