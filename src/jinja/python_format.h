// Values as text, as Python writes them: str(), repr(), json.dumps(), "%s" and "{}". All charge
// what they make. Pure but for that.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jinja/runtime.h"
#include "jinja/value.h"

namespace pelton::jinja {

// "1.0", "1e+20", "0.1": the shortest text that reads back equal.
std::string float_text(double value);

// What print shows: a string as it is, undefined as nothing, anything else by repr.
Result<Text> to_text(Runtime& runtime, const Value& value);
// 'it', "it's", [1, None], {'a': True}.
Result<std::string> repr(Runtime& runtime, const Value& value);

struct JsonStyle {
  std::optional<int64_t> indent;  // none: one line
  std::string between = ", ";     // items; with an indent without the space
  std::string behind_key = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
// json.dumps. Error: something that JSON has no words for.
Result<std::string> to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

// "%s-%d" % (a, 3); a single value needs no tuple.
Result<Text> percent_format(Runtime& runtime, const Text& format, const Value& values);
// "{} {1} {name}".format(...)
Result<Text> brace_format(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace pelton::jinja
