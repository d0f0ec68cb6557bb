// A Jinja template: compiled once, rendered often. As chat templates are written for: trim_blocks
// and lstrip_blocks, loop controls, an immutable sandbox, tojson without HTML escapes,
// raise_exception() and strftime_now(). Any source and any context end in a text or in one error,
// within the limits. Immutable; any thread.
//
//   Template::compile("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
//       .value().render({...}, {}).value().bytes()   // "<user>hi"
//
// Source: https://jinja.palletsprojects.com/en/stable/templates/. What is left out of it is listed
// in docs/chat_templates.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jinja/features.h"
#include "jinja/runtime.h"
#include "jinja/value.h"

namespace pelton::jinja {

class Template {
 public:
  static constexpr size_t kSourceBytesMax = 1 << 20;

  // Error kInvalidArgument: the line and what is wrong with it.
  static Result<Template> compile(std::string_view source);

  struct Options {
    Limits limits = {};
    int64_t unix_seconds = 0;  // what strftime_now() shows; UTC
  };
  // Keys of `context` are names. Error kInvalidArgument: the line, and the template's own words if
  // it raised an exception.
  Result<Text> render(const Dict& context, const Options& options) const;

  Features features() const;

 private:
  explicit Template(std::shared_ptr<const std::vector<Statement>> body) : body_(std::move(body)) {}
  std::shared_ptr<const std::vector<Statement>> body_;
};

}  // namespace pelton::jinja
