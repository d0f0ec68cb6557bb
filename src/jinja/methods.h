// The methods of Python's strings, dicts and lists that templates call. What would change a list or
// a dict is not there: values are immutable, as in the sandbox that templates are written for.
#pragma once

#include <optional>
#include <string_view>

#include "base/function_ref.h"
#include "jinja/runtime.h"
#include "jinja/value.h"

namespace pelton::jinja {

// The method bound to the value; undefined, with its reason, where it would change the value;
// nothing if there is none of that name.
std::optional<Value> method_of(const Value& value, std::string_view name);

using Method = Result<Value> (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

struct NamedMethod {
  std::string_view name;
  Method method;
};

Method find_string_method(std::string_view name);  // null: there is none

// str.replace and the filter of that name; a negative count replaces all.
Result<Value> replaced(Runtime& runtime, const Text& text, const Text& old, const Text& with,
                       int64_t count);
// str.strip: of the characters in `taken_off`, or white space if it is null.
enum class Side { kLeft, kRight, kBoth };
Result<Text> stripped(Runtime& runtime, const Text& text, const Text* taken_off, Side side);
// "hello world" -> "Hello World".
std::string title_case(std::string_view text);
// Every character in lower case, but those in upper case for whose text before it `begins` holds.
std::string cased(std::string_view text, base::FunctionRef<bool(std::string_view before)> begins);
std::string capitalized(std::string_view text);
// What stands between the line ends, without them.
std::vector<Text> lines_of(const Text& text);

}  // namespace pelton::jinja
