#include "jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "jinja/methods.h"
#include "jinja/operators.h"
#include "jinja/python_format.h"

namespace pelton::jinja {
namespace {

Result<Value> identity(Runtime&, const Value& value, const Arguments&) {
  return value;
}

Result<Value> length(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("length", arguments, {}, 0));
  if (value.is_undefined()) return Value(int64_t{0});
  if (value.is_string()) {
    TRY(runtime.charge(value.weight()));
    return Value::count(code_point_count(value.as_string()));
  }
  if (value.is_sequence()) return Value::count(value.as_list().items.size());
  if (value.is_dict()) return Value::count(value.as_dict().members.size());
  return failure(fmt::format("object of type '{}' has no length", value.type_name()));
}

Result<Value> string(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("string", arguments, {}, 0));
  TRY_ASSIGN(Text text, to_text(runtime, value));
  return Value(std::move(text));
}

Result<Value> otherwise(Runtime&, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("default", arguments, {"default_value", "boolean"}, 0));
  const bool by_truth = bound[1] != nullptr && bound[1]->truth();
  if (by_truth ? value.truth() : !value.is_undefined()) return value;
  return bound[0] != nullptr ? *bound[0] : Value(Text());
}

Result<Value> to_json_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound,
             bind("tojson", arguments, {"indent", "ensure_ascii", "separators", "sort_keys"}, 0));
  JsonStyle style;
  if (bound[0] != nullptr && bound[0]->is_integer()) style.indent = bound[0]->as_integer();
  style.ascii = bound[1] != nullptr && bound[1]->truth();
  style.sort_keys = bound[3] != nullptr && bound[3]->truth();
  if (bound[2] != nullptr && bound[2]->is_sequence()) {
    const std::vector<Value>& both = bound[2]->as_list().items;
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string()) {
      return failure("tojson(): separators are two strings");
    }
    const size_t size = both[0].as_text().size() + both[1].as_text().size();
    if (size > 1024) return failure("tojson(): separators of at most 1024 bytes");
    TRY(runtime.allocate(3 * size * std::min(value.weight(), runtime.limits().bytes)));
    style.between = both[0].as_string();
    style.behind_key = both[1].as_string();
  }
  TRY_ASSIGN(std::string text, to_json(runtime, value, style));
  const bool is_data = value.depth() > 0 || value.is_string();
  return Value(is_data ? Text::from_input(std::move(text)) : Text(std::move(text)));
}

Result<Value> from_json(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("from_json", arguments, {}, 0));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  // A byte may be a value: of the parser's, and then of ours.
  TRY(runtime.allocate_objects(2 * text.size()));
  const Result<Json> json = Json::parse(text.bytes());
  if (!json.ok()) return failure("from_json: " + json.error().message);
  return Value::from_json(*json);
}

Result<Value> trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("trim", arguments, {"chars"}, 0));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  const bool has_set = bound[0] != nullptr && bound[0]->is_string();
  TRY_ASSIGN(Text out,
             stripped(runtime, text, has_set ? &bound[0]->as_text() : nullptr, Side::kBoth));
  return Value(std::move(out));
}

using Change = std::string (*)(std::string_view);

std::string upper(std::string_view text) {
  return to_case(text, LetterCase::kUpper);
}
std::string lower(std::string_view text) {
  return to_case(text, LetterCase::kLower);
}

// As the filter has it, not the method: words begin behind space, '-' and opening brackets.
std::string title_of_words(std::string_view text) {
  return cased(text, [](std::string_view before) {
    return before.empty() || is_space(static_cast<unsigned char>(before.back())) ||
           std::string_view("-({[<").find(before.back()) != std::string_view::npos;
  });
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&#34;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~/").find(c) != std::string_view::npos;
    out += stays ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

template <Change change>
Result<Value> changed(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("upper", arguments, {}, 0));
  if (change == percent_encoded && value.depth() > 0) {
    return failure("urlencode: only strings are encoded here");
  }
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  TRY(runtime.allocate(3 * text.size() * 6));
  return Value(text.transformed(change(text.bytes())));
}

Result<Value> replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("replace", arguments, {"old", "new", "count"}, 2));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  TRY_ASSIGN(const Text old, to_text(runtime, *bound[0]));
  TRY_ASSIGN(const Text with, to_text(runtime, *bound[1]));
  const bool counts = bound[2] != nullptr && bound[2]->is_integer();
  return replaced(runtime, text, old, with, counts ? bound[2]->as_integer() : -1);
}

Result<Value> indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("indent", arguments, {"width", "first", "blank"}, 0));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  Text margin("    ");
  if (bound[0] != nullptr && bound[0]->is_string()) {
    margin = bound[0]->as_text();
  } else if (bound[0] != nullptr) {
    if (!bound[0]->is_integer() || bound[0]->as_integer() > 1000) {
      return failure("indent() needs a width of at most 1000");
    }
    margin =
        Text(std::string(static_cast<size_t>(std::max<int64_t>(bound[0]->as_integer(), 0)), ' '));
  }
  const bool first = bound[1] != nullptr && bound[1]->truth();
  const bool blank = bound[2] != nullptr && bound[2]->truth();
  Text out;
  for (size_t begin = 0, line = 0; begin <= text.size(); ++line) {
    const size_t end = std::min(text.bytes().find('\n', begin), text.size());
    TRY(runtime.allocate(3 * (margin.size() + end - begin + 1)));
    TRY(runtime.allocate((margin.input().size() + 1) * 2 * sizeof(Text::Range)));
    if ((line > 0 || first) && (blank || end > begin || (line == 0 && first))) out.append(margin);
    out.append(text.slice(begin, end + 1 - begin));
    begin = end + 1;
  }
  return Value(std::move(out));
}

std::optional<double> number_in(const Value& value) {
  if (value.is_number()) return value.as_number();
  if (!value.is_string()) return std::nullopt;
  std::string_view text = value.as_string();
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Value> to_int(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("int", arguments, {"default", "base"}, 0));
  TRY(runtime.charge(value.weight()));  // all of a string is read
  const Value absent = bound[0] != nullptr ? *bound[0] : Value(int64_t{0});
  if (value.is_undefined()) return failure(value.why_undefined());
  if (value.is_integer() || value.is_bool()) return Value(value.as_integer());
  if (value.is_string()) {
    std::string_view text = value.as_string();
    text.remove_prefix(leading_space(text));
    text.remove_suffix(trailing_space(text));
    const bool is_hex = bound[1] != nullptr && *bound[1] == Value(int64_t{16});
    if (is_hex && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
    const bool has_base = bound[1] != nullptr && bound[1]->is_integer() &&
                          bound[1]->as_integer() >= 2 && bound[1]->as_integer() <= 36;
    int64_t number = 0;
    const auto [end, failed] =
        std::from_chars(text.data(), text.data() + text.size(), number,
                        has_base ? static_cast<int>(bound[1]->as_integer()) : 10);
    if (failed == std::errc() && end == text.data() + text.size()) return Value(number);
  }
  const std::optional<double> number = number_in(value);
  if (!number || !std::isfinite(*number)) return absent;
  if (!(std::abs(*number) < 9.2e18)) {
    return failure("int: the number is too large: integers have 64 bits here");
  }
  return Value(static_cast<int64_t>(*number));
}

Result<Value> to_float(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("float", arguments, {"default"}, 0));
  TRY(runtime.charge(value.weight()));
  if (value.is_undefined()) return failure(value.why_undefined());
  if (const std::optional<double> number = number_in(value)) return Value(*number);
  return bound[0] != nullptr ? *bound[0] : Value(0.0);
}

Result<Value> absolute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("abs", arguments, {}, 0));
  if (!value.is_number()) return failure("abs needs a number");
  if (value.is_float()) return Value(std::abs(value.as_number()));
  if (value.as_integer() >= 0) return Value(value.as_integer());
  return arithmetic(runtime, "-", Value(int64_t{0}), value);
}

// To the nearest, halves to even, as Python does; by its decimal text where digits are asked for.
Result<Value> round(Runtime&, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("round", arguments, {"precision", "method"}, 0));
  if (!value.is_number()) return failure("round needs a number");
  const int64_t digits = bound[0] != nullptr && bound[0]->is_integer() ? bound[0]->as_integer() : 0;
  const std::string method =
      bound[1] != nullptr && bound[1]->is_string() ? bound[1]->as_string() : "common";
  if (digits < 0 || digits > 15) return failure("round() takes a precision from 0 to 15");
  if (!value.is_float() && method == "common") return Value(value.as_integer());
  const double number = value.as_number();
  if (method == "common") {
    return Value(std::strtod(fmt::format("{:.{}f}", number, digits).c_str(), nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = number * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> truncate(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound,
             bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  TRY(runtime.allocate(text));
  const auto integer = [&](size_t at, int64_t absent) {
    return bound[at] != nullptr && bound[at]->is_integer() ? bound[at]->as_integer() : absent;
  };
  const int64_t wanted = integer(0, 255);
  const int64_t leeway = integer(3, 5);
  const Text end = bound[2] != nullptr && bound[2]->is_string() ? bound[2]->as_text() : Text("...");
  const int64_t size = static_cast<int64_t>(code_point_count(text.bytes()));
  const int64_t kept = wanted - static_cast<int64_t>(code_point_count(end.bytes()));
  if (kept < 0 || wanted > (int64_t{1} << 40) || leeway < 0) {
    return failure("truncate() needs a length that its end fits in");
  }
  if (size <= wanted + std::min<int64_t>(leeway, int64_t{1} << 40)) return Value(text);
  Text out = text.slice(0, code_point_offset(text.bytes(), static_cast<size_t>(kept)));
  const bool kills = bound[1] != nullptr && bound[1]->truth();
  const size_t space = kills ? std::string::npos : out.bytes().rfind(' ');
  if (space != std::string::npos) out = out.slice(0, space);
  out.append(end);
  return Value(std::move(out));
}

Result<Value> wordcount(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("wordcount", arguments, {}, 0));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  TRY(runtime.charge(text.size() / 8));
  int64_t words = 0;
  bool in_word = false;
  for (const char c : text.bytes()) {
    const bool is_word = static_cast<unsigned char>(c) >= 0x80 || c == '_' ||
                         (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value(words);
}

Result<Value> center(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("center", arguments, {"width"}, 0));
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  if (bound[0] != nullptr && (!bound[0]->is_integer() || bound[0]->as_integer() > 10'000)) {
    return failure("center() needs a width of at most 10000");
  }
  const int64_t width = bound[0] != nullptr ? std::max<int64_t>(bound[0]->as_integer(), 0) : 80;
  const int64_t size = static_cast<int64_t>(code_point_count(text.bytes()));
  const size_t padding = static_cast<size_t>(std::max<int64_t>(width - size, 0));
  TRY(runtime.allocate(text));
  TRY(runtime.allocate(3 * padding));
  Text out(std::string(padding / 2, ' '));
  out.append(text);
  out.append(std::string(padding - padding / 2, ' '));
  return Value(std::move(out));
}

Result<Value> format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const Text text, to_text(runtime, value));
  TRY(runtime.allocate_items(2 * arguments.positional.size()));
  TRY_ASSIGN(const Value given, Value::tuple(arguments.positional));
  TRY_ASSIGN(Text out, percent_format(runtime, text, given));
  return Value(std::move(out));
}

Result<Value> attribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("attr", arguments, {"name"}, 1));
  if (!bound[0]->is_string()) return failure("attr() needs a name");
  if (value.is_dict() && !method_of(value, bound[0]->as_string())) {
    TRY(runtime.allocate_objects(2));
    return Value::undefined("attr() does not see a dict's members");
  }
  return attribute_of(runtime, value, bound[0]->as_string());
}

constexpr NamedFilter kFilters[] = {
    {"length", length},
    {"count", length},
    {"string", string},
    {"safe", identity},
    {"default", otherwise},
    {"d", otherwise},
    {"tojson", to_json_filter},
    {"from_json", from_json},
    {"fromjson", from_json},
    {"trim", trim},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"title", changed<title_of_words>},
    {"capitalize", changed<capitalized>},
    {"escape", changed<escaped>},
    {"e", changed<escaped>},
    {"urlencode", changed<percent_encoded>},
    {"replace", replace},
    {"indent", indent},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"center", center},
    {"format", format},
    {"attr", attribute},
};

}  // namespace

Filter find_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                         [&](const NamedFilter& f) { return f.name == name; });
  return found == std::end(kFilters) ? find_list_filter(name) : found->filter;
}

}  // namespace pelton::jinja
