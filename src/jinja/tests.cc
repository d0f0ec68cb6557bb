// What stands behind "is".
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/python_format.h"

namespace pelton::jinja {
namespace {

using Property = bool (*)(const Value&);

template <Property property>
Result<bool> is(Runtime&, const Value& value, const Arguments& arguments) {
  TRY(bind("is", arguments, {}, 0));
  return property(value);
}

bool defined(const Value& value) {
  return !value.is_undefined();
}
bool undefined(const Value& value) {
  return value.is_undefined();
}
bool none(const Value& value) {
  return value.is_none();
}
bool string(const Value& value) {
  return value.is_string();
}
bool mapping(const Value& value) {
  return value.is_dict();
}
bool holds_items(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is_undefined();
}
bool boolean(const Value& value) {
  return value.is_bool();
}
bool is_true(const Value& value) {
  return value.is_bool() && value.as_bool();
}
bool is_false(const Value& value) {
  return value.is_bool() && !value.as_bool();
}
bool number(const Value& value) {
  return value.is_number();
}
bool integer(const Value& value) {
  return value.is_integer();
}
bool is_float(const Value& value) {
  return value.is_float();
}
bool callable(const Value& value) {
  return value.is_callable();
}
bool never(const Value&) {
  return false;
}

// All letters have this case, and there are some.
template <LetterCase letter_case>
Result<bool> has_case(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("is", arguments, {}, 0));
  TRY_ASSIGN(const Text written, to_text(runtime, value));
  const std::string& text = written.bytes();
  TRY(runtime.allocate(4 * text.size()));
  const LetterCase other =
      letter_case == LetterCase::kUpper ? LetterCase::kLower : LetterCase::kUpper;
  return to_case(text, letter_case) == text && to_case(text, other) != text;
}

Result<bool> divisible(Runtime& runtime, const Value& value, const Value& by) {
  TRY_ASSIGN(const Value rest, arithmetic(runtime, "%", value, by));
  return !rest.truth();
}

Result<bool> even(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("even", arguments, {}, 0));
  return divisible(runtime, value, Value(int64_t{2}));
}

Result<bool> odd(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("odd", arguments, {}, 0));
  TRY_ASSIGN(const Value rest, arithmetic(runtime, "%", value, Value(int64_t{2})));
  return rest == Value(int64_t{1});
}

Result<bool> divisibleby(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("divisibleby", arguments, {"num"}, 1));
  return divisible(runtime, value, *bound[0]);
}

Result<bool> same_as(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("sameas", arguments, {"other"}, 1));
  TRY(runtime.charge(std::min(value.comparison(), bound[0]->comparison())));
  return value.type_name() == bound[0]->type_name() && value == *bound[0];
}

enum class Order { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual, kIn };

template <Order order>
Result<bool> compared(Runtime& runtime, const Value& value, const Arguments& arguments) {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
  TRY_ASSIGN(const auto bound, bind("is", arguments, {"other"}, 1));
  return compare(runtime, kOperators[static_cast<size_t>(order)], value, *bound[0]);
}

Result<bool> names_filter(Runtime&, const Value& value, const Arguments& arguments) {
  TRY(bind("filter", arguments, {}, 0));
  return value.is_string() && find_filter(value.as_string()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"defined", is<defined>},
    {"undefined", is<undefined>},
    {"none", is<none>},
    {"string", is<string>},
    {"mapping", is<mapping>},
    {"iterable", is<holds_items>},
    {"sequence", is<holds_items>},
    {"boolean", is<boolean>},
    {"true", is<is_true>},
    {"false", is<is_false>},
    {"number", is<number>},
    {"integer", is<integer>},
    {"float", is<is_float>},
    {"callable", is<callable>},
    {"escaped", is<never>},
    {"upper", has_case<LetterCase::kUpper>},
    {"lower", has_case<LetterCase::kLower>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisibleby},
    {"sameas", same_as},
    {"filter", names_filter},
    {"eq", compared<Order::kEqual>},
    {"equalto", compared<Order::kEqual>},
    {"==", compared<Order::kEqual>},
    {"ne", compared<Order::kNotEqual>},
    {"!=", compared<Order::kNotEqual>},
    {"lt", compared<Order::kLess>},
    {"lessthan", compared<Order::kLess>},
    {"<", compared<Order::kLess>},
    {"le", compared<Order::kLessOrEqual>},
    {"<=", compared<Order::kLessOrEqual>},
    {"gt", compared<Order::kGreater>},
    {"greaterthan", compared<Order::kGreater>},
    {">", compared<Order::kGreater>},
    {"ge", compared<Order::kGreaterOrEqual>},
    {">=", compared<Order::kGreaterOrEqual>},
    {"in", compared<Order::kIn>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTests), std::end(kTests),
                                         [&](const NamedTest& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace pelton::jinja
