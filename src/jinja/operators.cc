#include "jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "jinja/methods.h"
#include "jinja/python_format.h"

namespace pelton::jinja {
namespace {

Error no_operator(std::string_view name, const Value& a, const Value& b) {
  if (a.is_undefined()) return failure(a.why_undefined());
  if (b.is_undefined()) return failure(b.why_undefined());
  return failure(
      fmt::format("'{}' cannot be applied to '{}' and '{}'", name, a.type_name(), b.type_name()));
}

Error too_large() {
  return failure("a number is too large: integers have 64 bits here");
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return failure("division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  int64_t out = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(out, base, &out)) return too_large();
  }
  return Value(out);
}

Result<Value> integer_arithmetic(std::string_view name, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflows = false;
  if (name == "+") {
    overflows = __builtin_add_overflow(a, b, &out);
  } else if (name == "-") {
    overflows = __builtin_sub_overflow(a, b, &out);
  } else if (name == "*") {
    overflows = __builtin_mul_overflow(a, b, &out);
  } else if (name == "**") {
    return power(a, b);
  } else {
    if (b == 0) return failure("division by zero");
    if (name == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {
      if (name == "%") return Value(int64_t{0});
      overflows = __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {
      out = name == "//" ? floor_div(a, b) : a - floor_div(a, b) * b;
    }
  }
  if (overflows) return too_large();
  return Value(out);
}

Result<Value> float_arithmetic(std::string_view name, double a, double b) {
  if (name == "+") return Value(a + b);
  if (name == "-") return Value(a - b);
  if (name == "*") return Value(a * b);
  if (name == "**") return Value(std::pow(a, b));
  if (b == 0) return failure("division by zero");
  if (name == "/") return Value(a / b);
  // As CPython has it: the rest is exact and has the divisor's sign.
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (name == "%") return Value(rest != 0 ? rest : std::copysign(0.0, b));
  return Value(std::round((a - rest) / b));
}

Result<Value> repeated(Runtime& runtime, const Value& value, int64_t count) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size = value.is_string() ? value.as_text().size() +
                                              value.as_text().input().size() * sizeof(Text::Range)
                                        : value.as_list().items.size() * sizeof(Value);
  if (size > 0 && times > runtime.limits().bytes / size) return runtime.allocate(SIZE_MAX).error();
  TRY(runtime.allocate(3 * size * times));  // it grows
  if (size == 0) return value;
  if (value.is_string()) {
    Text out;
    for (size_t i = 0; i < times; ++i) out.append(value.as_text());
    return Value(std::move(out));
  }
  std::vector<Value> items;
  const std::vector<Value>& once = value.as_list().items;
  for (size_t i = 0; i < times; ++i) items.insert(items.end(), once.begin(), once.end());
  return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Result<Value> joined(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string()) {
    TRY(runtime.allocate(a.as_text()));
    TRY(runtime.allocate(b.as_text()));
    TRY(runtime.allocate(a.as_text()));  // while it grows
    Text out = a.as_text();
    out.append(b.as_text());
    return Value(std::move(out));
  }
  TRY(runtime.allocate_items(a.as_list().items.size() + b.as_list().items.size()));
  std::vector<Value> items = a.as_list().items;
  items.insert(items.end(), b.as_list().items.begin(), b.as_list().items.end());
  return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Result<bool> contains(Runtime& runtime, const Value& item, const Value& in) {
  TRY(runtime.charge(in.weight()));
  if (in.depth() > 0)
    TRY(runtime.charge(std::min(in.comparison(), item.comparison() * in.weight())));
  if (in.is_string()) {
    if (!item.is_string()) {
      return failure(
          fmt::format("'in <string>' needs a string on its left, not '{}'", item.type_name()));
    }
    return find_text(in.as_string(), item.as_string(), 0) != std::string_view::npos;
  }
  if (in.is_dict()) return in.as_dict().find(item) != nullptr;
  if (in.is_undefined()) return false;
  if (!in.is_sequence()) return failure(fmt::format("'{}' object is not iterable", in.type_name()));
  const std::vector<Value>& items = in.as_list().items;
  return std::find(items.begin(), items.end(), item) != items.end();
}

std::string type_repr(const Value& value) {
  return value.is_none() ? "'None'" : fmt::format("'{} object'", value.type_name());
}

// An index into `size` items, from the end if negative.
std::optional<size_t> index_in(const Value& key, size_t size) {
  if (!key.is_integer() && !key.is_bool()) return std::nullopt;
  const int64_t count = static_cast<int64_t>(size);
  int64_t at = key.as_integer();
  if (at < 0) at += count;
  if (at < 0 || at >= count) return std::nullopt;
  return static_cast<size_t>(at);
}

Value character(const Text& text, size_t index) {
  const size_t begin = code_point_offset(text.bytes(), index);
  const size_t size = code_point_offset(std::string_view(text.bytes()).substr(begin), 1);
  return text.slice(begin, size);
}

struct Slice {
  int64_t begin, end, step;
};

// As Python's slice.indices().
Result<Slice> slice_in(const Value* begin, const Value* end, const Value* step, int64_t size) {
  const auto given = [](const Value* value) { return value != nullptr && !value->is_none(); };
  for (const Value* value : {begin, end, step}) {
    if (given(value) && !value->is_integer() && !value->is_bool()) {
      return value->is_undefined() ? failure(value->why_undefined())
                                   : failure("slice indices must be integers");
    }
  }
  Slice slice{.begin = 0, .end = size, .step = given(step) ? step->as_integer() : 1};
  if (slice.step == 0) return failure("slice step cannot be zero");
  const bool forward = slice.step > 0;
  const auto clamped = [&](int64_t at) {
    if (at < 0) at = at < -size ? -1 : at + size;
    if (at < 0) return forward ? int64_t{0} : int64_t{-1};
    return std::min(at, forward ? size : size - 1);
  };
  if (!forward) slice = {.begin = size - 1, .end = -1, .step = slice.step};
  if (given(begin)) slice.begin = clamped(begin->as_integer());
  if (given(end)) slice.end = clamped(end->as_integer());
  return slice;
}

}  // namespace

Result<Value> arithmetic(Runtime& runtime, std::string_view name, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return float_arithmetic(name, a.as_number(), b.as_number());
    return integer_arithmetic(name, a.as_integer(), b.as_integer());
  }
  const bool alike = (a.is_string() && b.is_string()) || (a.is_list() && b.is_list()) ||
                     (a.is_tuple() && b.is_tuple());
  if (name == "+" && alike) return joined(runtime, a, b);
  if (name == "%" && a.is_string()) {
    TRY_ASSIGN(Text text, percent_format(runtime, a.as_text(), b));
    return Value(std::move(text));
  }
  const auto counts = [](const Value& value) { return value.is_integer() || value.is_bool(); };
  if (name == "*" && (a.is_string() || a.is_sequence()) && counts(b)) {
    return repeated(runtime, a, b.as_integer());
  }
  if (name == "*" && (b.is_string() || b.is_sequence()) && counts(a)) {
    return repeated(runtime, b, a.as_integer());
  }
  return no_operator(name, a, b);
}

Result<bool> compare(Runtime& runtime, std::string_view name, const Value& a, const Value& b) {
  TRY(runtime.charge(std::min(a.comparison(), b.comparison())));
  if (name == "==") return a == b;
  if (name == "!=") return !(a == b);
  if (name == "<") return is_less(a, b);
  if (name == ">") return is_less(b, a);
  if (name == "in") return contains(runtime, a, b);
  if (name == "not in") {
    TRY_ASSIGN(const bool is_in, contains(runtime, a, b));
    return !is_in;
  }
  TRY_ASSIGN(const bool greater, name == "<=" ? is_less(b, a) : is_less(a, b));
  return !greater;
}

Result<Value> attribute_of(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_undefined()) return failure(value.why_undefined());
  if (std::optional<Value> method = method_of(value, name)) {
    TRY(runtime.allocate_objects(2));
    return std::move(*method);
  }
  if (Object* object = value.object()) {
    const size_t count = object->attribute_count();
    TRY(runtime.charge(count / 16 + count * (name.size() / 64)));
    if (std::optional<Value> attribute = object->attribute(name)) return std::move(*attribute);
  }
  if (value.is_dict()) {
    const auto& members = value.as_dict().members;
    TRY_ASSIGN(const size_t at, find_member(runtime, value.as_dict(), name));
    if (at < members.size()) return members[at].second;
  }
  TRY(runtime.allocate_objects(2));
  TRY(runtime.allocate(2 * name.size()));
  return Value::undefined(fmt::format("{} has no attribute '{}'", type_repr(value), name));
}

Result<Value> item_of(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) return failure(value.why_undefined());
  TRY(runtime.charge(1));
  if (value.is_dict()) {
    const auto& members = value.as_dict().members;
    TRY_ASSIGN(const size_t at, find_member(runtime, value.as_dict(), key));
    if (at < members.size()) return members[at].second;
  } else if (value.is_sequence()) {
    const std::vector<Value>& items = value.as_list().items;
    if (const std::optional<size_t> at = index_in(key, items.size())) return items[*at];
  } else if (value.is_string()) {
    TRY(runtime.charge(value.weight()));
    const Text& text = value.as_text();
    const std::optional<size_t> at = index_in(key, code_point_count(text.bytes()));
    if (at) return character(text, *at);
  }
  if (key.is_string()) return attribute_of(runtime, value, key.as_string());
  TRY(runtime.allocate_objects(2));
  TRY_ASSIGN(const std::string shown, repr(runtime, key));
  return Value::undefined(fmt::format("{} has no element {}", type_repr(value), shown));
}

Result<Value> slice_of(Runtime& runtime, const Value& value, const Value* begin, const Value* end,
                       const Value* step) {
  if (value.is_undefined()) return failure(value.why_undefined());
  if (!value.is_string() && !value.is_sequence()) {
    TRY(runtime.allocate_objects(2));
    return Value::undefined(fmt::format("'{}' object cannot be sliced", value.type_name()));
  }
  TRY(runtime.charge(value.weight()));
  const size_t size =
      value.is_string() ? code_point_count(value.as_string()) : value.as_list().items.size();
  TRY_ASSIGN(const Slice slice, slice_in(begin, end, step, static_cast<int64_t>(size)));
  const bool is_range = value.is_string() && slice.step == 1;
  if (is_range) {
    if (slice.begin >= slice.end) return Value(Text());
    const std::string_view bytes = value.as_string();
    const size_t from = code_point_offset(bytes, static_cast<size_t>(slice.begin));
    const size_t length = static_cast<size_t>(slice.end - slice.begin);
    const size_t bytes_taken = code_point_offset(bytes.substr(from), length);
    TRY(runtime.allocate(value.as_text()));
    return Value(value.as_text().slice(from, bytes_taken));
  }
  TRY_ASSIGN(const std::vector<Value> all, items_of(runtime, value));
  TRY(runtime.allocate_items(all.size()));
  std::vector<Value> items;
  for (int64_t at = slice.begin; slice.step > 0 ? at < slice.end : at > slice.end;) {
    items.push_back(all[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, slice.step, &at)) break;
  }
  if (!value.is_string()) {
    return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  TRY(runtime.allocate(3 * value.as_text().size()));
  Text out;
  for (const Value& item : items) out.append(item.as_text());
  return Value(std::move(out));
}

}  // namespace pelton::jinja
