#include "jinja/python_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::jinja {
namespace {

constexpr int64_t kIndentMax = 64;

void append_escaped(std::string& out, uint32_t code_point) {
  if (code_point <= 0xFF) {
    out += fmt::format("\\x{:02x}", code_point);
  } else if (code_point <= 0xFFFF) {
    out += fmt::format("\\u{:04x}", code_point);
  } else {
    out += fmt::format("\\U{:08x}", code_point);
  }
}

bool is_printable(uint32_t c) {
  return c >= 0x20 && c != 0x7F && !(c >= 0x80 && c <= 0xA0) && c != 0xAD && c != 0x2028 &&
         c != 0x2029 && c != 0xFEFF;
}

void append_string_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    const uint32_t c = step.code_point;
    const bool is_whole = step.kind == base::Utf8Step::Kind::kCodePoint;
    if (is_whole && (c == static_cast<uint32_t>(quote) || c == '\\')) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_whole && (c == '\n' || c == '\r' || c == '\t')) {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_whole && !is_printable(c)) {
      append_escaped(out, c);
    } else {
      out += text.substr(0, step.bytes);
    }
    text.remove_prefix(step.bytes);
  }
  out += quote;
}

// What writing a value may take: a character that is escaped becomes six, a pair of them twelve.
// As deep as a value may be (kValueDepthMax).
size_t written_bytes_max(const Value& value) {
  constexpr size_t kScalarBytes = 32;
  if (value.is_string()) {
    const std::string& text = value.as_string();
    const auto escaped = std::count_if(text.begin(), text.end(), [](char c) {
      return c < 0x20 || c == 0x7F || c == '"' || c == '\'' || c == '\\';  // or beyond ASCII
    });
    return text.size() + 5 * static_cast<size_t>(escaped) + kScalarBytes;
  }
  size_t bytes = kScalarBytes;
  if (value.is_sequence()) {
    for (const Value& item : value.as_list().items) bytes += written_bytes_max(item);
  } else if (value.is_dict()) {
    for (const auto& [key, member] : value.as_dict().members) {
      bytes += written_bytes_max(key) + written_bytes_max(member);
    }
  }
  return bytes;
}

// As deep as a value may be (kValueDepthMax).
void append_repr(std::string& out, const Value& value) {
  std::string_view separator;
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_integer()) {
    out += std::to_string(value.as_integer());
  } else if (value.is_float()) {
    out += float_text(value.as_number());
  } else if (value.is_string()) {
    append_string_repr(out, value.as_string());
  } else if (value.is_sequence()) {
    out += value.is_tuple() ? '(' : '[';
    for (const Value& item : value.as_list().items) {
      out += separator;
      separator = ", ";
      append_repr(out, item);
    }
    if (value.is_tuple() && value.as_list().items.size() == 1) out += ',';
    out += value.is_tuple() ? ')' : ']';
  } else if (value.is_dict()) {
    out += '{';
    for (const auto& [key, member] : value.as_dict().members) {
      out += separator;
      separator = ", ";
      append_repr(out, key);
      out += ": ";
      append_repr(out, member);
    }
    out += '}';
  } else {
    out += fmt::format("<{}>", value.type_name());
  }
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
  static constexpr std::string_view kLetters = "\"\\nrtfb";
  out += '"';
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    const uint32_t c = step.kind == base::Utf8Step::Kind::kCodePoint ? step.code_point : 0xFFFD;
    const size_t escaped = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (escaped != std::string_view::npos) {
      out += '\\';
      out += kLetters[escaped];
    } else if (c < 0x20 || (ascii && c > 0x7E && c <= 0xFFFF)) {
      out += fmt::format("\\u{:04x}", c);
    } else if (ascii && c > 0xFFFF) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
    } else {
      out += text.substr(0, step.bytes);
    }
    text.remove_prefix(step.bytes);
  }
  out += '"';
}

class JsonText {
 public:
  JsonText(Runtime& runtime, const JsonStyle& style, std::string& out)
      : runtime_(runtime), style_(style), out_(out) {}

  // As deep as a value may be.
  Result<void> append(const Value& value, int64_t level) {
    if (value.is_string()) {
      append_json_string(out_, value.as_string(), style_.ascii);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_float() && !std::isfinite(value.as_number())) {
      const double number = value.as_number();
      out_ += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    } else if (value.is_number()) {
      append_repr(out_, value);
    } else if (value.is_sequence()) {
      return append_list(value.as_list(), level);
    } else if (value.is_dict()) {
      return append_dict(value.as_dict(), level);
    } else {
      return failure(fmt::format("a value of type {} is not JSON serializable", value.type_name()));
    }
    return {};
  }

 private:
  Result<void> append_list(const List& list, int64_t level) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.between;
      TRY(new_line(level + 1));
      TRY(append(list.items[i], level + 1));
    }
    if (!list.items.empty()) TRY(new_line(level));
    out_ += ']';
    return {};
  }

  Result<void> append_dict(const Dict& dict, int64_t level) {
    std::vector<std::pair<std::string, const Value*>> members;
    for (const auto& [key, value] : dict.members) {
      TRY_ASSIGN(std::string name, key_text(key));
      members.emplace_back(std::move(name), &value);
    }
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += style_.between;
      TRY(new_line(level + 1));
      append_json_string(out_, members[i].first, style_.ascii);
      out_ += style_.behind_key;
      TRY(append(*members[i].second, level + 1));
    }
    if (!members.empty()) TRY(new_line(level));
    out_ += '}';
    return {};
  }

  static Result<std::string> key_text(const Value& key) {
    if (key.is_string()) return key.as_string();
    if (key.is_none()) return std::string("null");
    if (key.is_bool()) return std::string(key.as_bool() ? "true" : "false");
    if (!key.is_number()) return failure("keys of JSON are strings");
    std::string text;
    append_repr(text, key);
    return text;
  }

  Result<void> new_line(int64_t level) {
    if (!style_.indent) return {};
    const size_t spaces = static_cast<size_t>(level * *style_.indent);
    TRY(runtime_.allocate(spaces + 1));
    out_ += '\n';
    out_.append(spaces, ' ');
    return {};
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string& out_;
};

// "%5.2f" and its like: the whole directive, ending in its letter.
Result<Text> formatted(Runtime& runtime, std::string_view directive, const Value& value) {
  const char letter = directive.back();
  std::string flags(directive.substr(1, directive.size() - 2));
  if (letter == 's' && flags.empty()) return to_text(runtime, value);
  const bool is_plain =
      flags.size() <= 6 && std::all_of(flags.begin(), flags.end(), [](char c) {
        return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == ' ';
      });
  if (!is_plain ||
      std::count_if(flags.begin(), flags.end(), [](char c) { return c >= '0' && c <= '9'; }) > 4) {
    return failure(fmt::format("the format '{}' is not supported", directive));
  }
  char buffer[1100 + 330];
  int size = -1;
  if (letter == 'r') {
    TRY_ASSIGN(std::string text, repr(runtime, value));
    return Text::from_input(std::move(text));
  }
  if ((letter == 'd' || letter == 'i' || letter == 'x' || letter == 'X') && value.is_number()) {
    const std::string format = "%" + flags + "ll" + letter;
    const long long number =
        value.is_float() ? static_cast<long long>(std::clamp(value.as_number(), -9e18, 9e18))
                         : value.as_integer();
    size = std::snprintf(buffer, sizeof buffer, format.c_str(), number);
  } else if ((letter == 'f' || letter == 'e' || letter == 'g') && value.is_number()) {
    const std::string format = "%" + flags + letter;
    size = std::snprintf(buffer, sizeof buffer, format.c_str(), value.as_number());
  } else if (letter == 's') {
    TRY_ASSIGN(const Text text, to_text(runtime, value));
    if (text.size() > 1000) return text;
    const std::string format = "%" + flags + "s";
    size = std::snprintf(buffer, sizeof buffer, format.c_str(), text.bytes().c_str());
    if (size >= 0 && size < static_cast<int>(sizeof buffer)) return text.transformed(buffer);
  }
  if (size < 0 || size >= static_cast<int>(sizeof buffer)) {
    return failure(
        fmt::format("'{}' cannot format a value of type {}", directive, value.type_name()));
  }
  return Text(std::string(buffer, static_cast<size_t>(size)));
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto shortest =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(shortest.ptr - buffer));
  const size_t e = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const int count = static_cast<int>(digits.size());
  std::string out = text[0] == '-' ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Result<Text> to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    TRY(runtime.allocate(value.as_text()));
    return value.as_text();
  }
  if (value.is_undefined()) return Text();
  TRY_ASSIGN(std::string text, repr(runtime, value));
  return value.depth() > 0 ? Text::from_input(std::move(text)) : Text(std::move(text));
}

Result<std::string> repr(Runtime& runtime, const Value& value) {
  TRY(runtime.charge(value.weight()));
  TRY(runtime.allocate(3 * written_bytes_max(value)));
  std::string out;
  append_repr(out, value);
  return out;
}

Result<std::string> to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  TRY(runtime.charge(value.weight()));
  if (style.indent && (*style.indent < 0 || *style.indent > kIndentMax)) {
    return failure(fmt::format("an indent is from 0 to {}", kIndentMax));
  }
  JsonStyle used = style;
  if (used.indent && used.between == ", ") used.between = ",";
  TRY(runtime.allocate(3 * written_bytes_max(value)));
  std::string out;
  TRY(JsonText(runtime, used, out).append(value, 0));
  return out;
}

Result<Text> percent_format(Runtime& runtime, const Text& format, const Value& values) {
  const std::string_view text = format.bytes();
  std::vector<Value> given = {values};
  if (values.is_tuple()) given = values.as_list().items;
  Text out;
  size_t used = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.append(format.slice(at, percent - at));
    if (percent == text.size()) break;
    const size_t letter = text.find_first_not_of("0123456789.+- ", percent + 1);
    if (letter == std::string_view::npos) return failure("incomplete format");
    at = letter + 1;
    if (text[letter] == '%') {
      out.append("%");
      continue;
    }
    if (used == given.size()) return failure("not enough arguments for format string");
    TRY_ASSIGN(const Text piece,
               formatted(runtime, text.substr(percent, at - percent), given[used++]));
    TRY(runtime.allocate(piece));
    TRY(runtime.allocate(2 * piece.size()));
    out.append(piece);
  }
  const bool is_mapping = values.is_dict() || values.is_list() || values.is_undefined();
  if (used < given.size() && !is_mapping) {
    return failure("not all arguments converted during string formatting");
  }
  return out;
}

Result<Text> brace_format(Runtime& runtime, const Text& format, const Arguments& arguments) {
  const std::string_view text = format.bytes();
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.append(format.slice(at, brace - at));
    if (brace == text.size()) break;
    if (text.substr(brace, 2) == "{{" || text.substr(brace, 2) == "}}") {
      out.append(text.substr(brace, 1));
      at = brace + 2;
      continue;
    }
    const size_t end = text.find('}', brace);
    if (text[brace] == '}' || end == std::string_view::npos) {
      return failure("a single brace in a format string");
    }
    const std::string_view name = text.substr(brace + 1, end - brace - 1);
    at = end + 1;
    const Value* value = nullptr;
    size_t index = next;
    const bool is_index =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (name.empty()) {
      ++next;
    } else if (is_index) {
      std::from_chars(name.data(), name.data() + name.size(), index);
    }
    if (is_index && index < arguments.positional.size()) value = &arguments.positional[index];
    for (const auto& [argument, given] : arguments.named) {
      if (!is_index && argument == name) value = &given;
    }
    if (value == nullptr) return failure(fmt::format("format() has nothing for '{{{}}}'", name));
    TRY_ASSIGN(const Text piece, to_text(runtime, *value));
    TRY(runtime.allocate(piece));
    TRY(runtime.allocate(2 * piece.size()));
    out.append(piece);
  }
  return out;
}

}  // namespace pelton::jinja
