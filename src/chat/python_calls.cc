// Calls that are written as Python: [f(a=1, b=["x", None]), g()].
#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/utf8.h"
#include "chat/call_syntax.h"
#include "chat/json_extent.h"
#include "chat/spaced_json.h"

namespace pelton::chat {
namespace {

bool begins_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool in_identifier(char c) {
  return begins_identifier(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

// Literals of Python as JSON values.
class PythonReader {
 public:
  PythonReader(std::string_view text, size_t at) : text_(text), at_(at) {}

  size_t at() const { return at_; }

  // Of the text; empty: there is none here.
  std::string_view identifier() {
    skip_space();
    const size_t begin = at_;
    if (at_ < text_.size() && begins_identifier(text_[at_])) {
      while (at_ < text_.size() && in_identifier(text_[at_])) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // As deep as JSON may be.
  std::optional<Json> value(int depth) {
    skip_space();
    if (at_ >= text_.size() || depth > Json::kDepthMax) return std::nullopt;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return string(c);
    if (c == '[') return list('[', ']', depth);
    if (c == '(') return list('(', ')', depth);
    if (c == '{') return dict(depth);
    if (begins_identifier(c)) return word();
    return number();
  }

 private:
  void skip_space() { at_ = skip_json_space(text_, at_); }

  std::optional<Json> word() {
    const std::string_view name = identifier();
    if (name == "True" || name == "true") return Json(true);
    if (name == "False" || name == "false") return Json(false);
    if (name == "None" || name == "null") return Json();
    return std::nullopt;
  }

  std::optional<Json> number() {
    const size_t end = std::min(text_.find_first_not_of("0123456789+-.eE_", at_), text_.size());
    std::string digits(text_.substr(at_, end - at_));
    std::erase(digits, '_');
    const Result<Json> read = Json::parse(digits.starts_with('+') ? digits.substr(1) : digits);
    if (!read.ok() || !read->is_number()) return std::nullopt;
    at_ = end;
    return *read;
  }

  std::optional<Json> string(char quote) {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        out += text_[at_];
        continue;
      }
      escape(out);
    }
    if (at_ >= text_.size()) return std::nullopt;
    ++at_;
    return Json(std::move(out));
  }

  // At the backslash; ends at the escape's last character.
  void escape(std::string& out) {
    static constexpr std::string_view kLetters = "nrtbfav\\'\"";
    static constexpr std::string_view kMeanings = "\n\r\t\b\f\a\v\\'\"";
    const char c = text_[++at_];
    const size_t letter = kLetters.find(c);
    if (letter != std::string_view::npos) {
      out += kMeanings[letter];
      return;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    const std::string_view hex = text_.substr(std::min(at_ + 1, text_.size()), digits);
    uint32_t code_point = 0;
    const auto [end, failed] = std::from_chars(hex.data(), hex.data() + hex.size(), code_point, 16);
    const bool is_one = digits > 0 && hex.size() == digits && failed == std::errc() &&
                        end == hex.data() + hex.size() &&
                        !(code_point >= 0xD800 && code_point <= 0xDFFF);
    if (is_one) {
      base::append_utf8(out, code_point);
      at_ += digits;
    } else {
      out += '\\';
      out += c;
    }
  }

  std::optional<Json> list(char opening, char closing, int depth) {
    Json::Array items;
    take(opening);
    while (!take(closing)) {
      if (!items.empty() && !take(',')) return std::nullopt;
      if (!items.empty() && take(closing)) break;
      std::optional<Json> item = value(depth + 1);
      if (!item) return std::nullopt;
      items.push_back(std::move(*item));
    }
    return Json(std::move(items));
  }

  std::optional<Json> dict(int depth) {
    Json::Object members;
    take('{');
    while (!take('}')) {
      if (!members.empty() && !take(',')) return std::nullopt;
      if (!members.empty() && take('}')) break;
      std::optional<Json> key = value(depth + 1);
      if (!key || !key->is_string() || !take(':')) return std::nullopt;
      std::optional<Json> member = value(depth + 1);
      if (!member) return std::nullopt;
      members.push_back({key->as_string(), std::move(*member)});
    }
    return Json(std::move(members));
  }

  const std::string_view text_;
  size_t at_;
};

}  // namespace

std::optional<WrittenCall> read_python_call(std::string_view text, size_t& at) {
  PythonReader reader(text, at);
  const std::string_view name = reader.identifier();
  if (name.empty() || !reader.take('(')) return std::nullopt;
  Json::Object arguments;
  std::unordered_set<std::string_view> names;
  for (bool first = true; !reader.take(')'); first = false) {
    if (!first && !reader.take(',')) return std::nullopt;
    if (!first && reader.take(')')) break;
    const std::string_view key = reader.identifier();
    if (key.empty() || !reader.take('=')) return std::nullopt;
    std::optional<Json> value = reader.value(1);
    // A name given twice is an error in Python, too: one of the values would be lost.
    if (!value || !names.insert(key).second) return std::nullopt;
    arguments.push_back({std::string(key), std::move(*value)});
  }
  at = reader.at();
  WrittenCall call{.name = std::string(name), .arguments = {}};
  append_spaced_json(call.arguments, Json(std::move(arguments)));
  return call;
}

std::optional<WrittenCalls> read_pythonic_calls(const CallSection& section) {
  const std::string_view text = section.text;
  size_t at = skip_json_space(text, 0);
  if (at == text.size()) return std::nullopt;
  if (text[at] != '[') return read_llama_calls(section);
  ++at;
  WrittenCalls written;
  while (true) {
    std::optional<WrittenCall> call = read_python_call(text, at);
    if (!call) return std::nullopt;
    written.calls.push_back(std::move(*call));
    at = skip_json_space(text, at);
    if (at == text.size()) return std::nullopt;
    const char c = text[at++];
    if (c == ']') break;
    if (c != ',') return std::nullopt;
  }
  if (skip_json_space(text, at) < text.size()) return std::nullopt;
  return written;
}

BeginsCall begins_pythonic_call(std::string_view text) {
  if (text.empty() || text[0] != '[') return begins_json_call(text);
  size_t at = skip_json_space(text, 1);
  if (at == text.size()) return BeginsCall::kUndecided;
  if (!begins_identifier(text[at])) return BeginsCall::kNo;
  while (at < text.size() && in_identifier(text[at])) ++at;
  if (at == text.size()) return BeginsCall::kUndecided;
  return text[at] == '(' ? BeginsCall::kYes : BeginsCall::kNo;
}

}  // namespace pelton::chat
