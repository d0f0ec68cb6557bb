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
#include "chat/python_values.h"

namespace pelton::chat {
namespace {

bool begins_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool in_identifier(char c) {
  return begins_identifier(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

// Literals of Python, written as JSON: not by way of values, so that numbers keep their digits.
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
    if (!is_next(c)) return false;
    ++at_;
    return true;
  }

  // As deep as JSON may be. False: there is none here; `out` may have a part of one.
  bool value(int depth, std::string& out) {
    skip_space();
    if (at_ >= text_.size() || depth > Json::kDepthMax) return false;
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      std::string read;
      if (!strings(read)) return false;
      base::append_json_string(out, read);
      return true;
    }
    if (c == '[') return list(depth, out);
    if (c == '(') return tuple(depth, out);
    if (c == '{') return dict(depth, out);
    if (begins_identifier(c)) return word(out);
    const std::optional<PythonNumber> number = read_python_number(text_.substr(at_));
    if (!number) return false;
    out += number->json;
    at_ += number->size;
    return true;
  }

 private:
  void skip_space() { at_ = skip_json_space(text_, at_); }
  bool is_next(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }

  bool word(std::string& out) {
    const std::string_view name = identifier();
    const std::string_view json = json_of_python_word(name);
    out += json;
    return !json.empty();
  }

  // One behind the other they are one.
  bool strings(std::string& out) {
    do {
      if (!string(out)) return false;
      skip_space();
    } while (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\''));
    return true;
  }

  // Of one quote or of three.
  bool string(std::string& out) {
    const std::string_view three = text_.substr(at_, 3);
    const char quote = text_[at_];
    const bool is_long = three == "\"\"\"" || three == "'''";
    const std::string_view end = is_long ? three : three.substr(0, 1);
    for (at_ += end.size(); at_ < text_.size(); ++at_) {
      if (text_[at_] == quote && text_.substr(at_).starts_with(end)) {
        at_ += end.size();
        return true;
      }
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        escape(out);
      } else {
        out += text_[at_];
      }
    }
    return false;
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

  bool list(int depth, std::string& out) {
    take('[');
    out += '[';
    size_t count = 0;
    if (!items(']', depth, out, count)) return false;
    out += ']';
    return true;
  }

  // A single value in parentheses, with no comma behind it, is that value.
  bool tuple(int depth, std::string& out) {
    take('(');
    const size_t begin = out.size();
    out += '[';
    size_t count = 0;
    if (!items(')', depth, out, count)) return false;
    size_t last = at_ - 2;  // ahead of the closing one
    while (kJsonSpace.find(text_[last]) != std::string_view::npos) --last;
    if (count == 1 && text_[last] != ',') {
      out.erase(begin, 1);
    } else {
      out += ']';
    }
    return true;
  }

  // Up to the closing one, which is taken.
  bool items(char closing, int depth, std::string& out, size_t& count) {
    for (; !take(closing); ++count) {
      if (count > 0 && !take(',')) return false;
      if (count > 0 && take(closing)) return true;
      if (count > 0) out += ", ";
      if (!value(depth + 1, out)) return false;
    }
    return true;
  }

  bool dict(int depth, std::string& out) {
    take('{');
    out += '{';
    for (bool first = true; !take('}'); first = false) {
      if (!first && !take(',')) return false;
      if (!first && take('}')) break;
      if (!first) out += ", ";
      if (!is_next('"') && !is_next('\'')) return false;
      if (!value(depth + 1, out) || !take(':')) return false;
      out += ": ";
      if (!value(depth + 1, out)) return false;
    }
    out += '}';
    return true;
  }

  const std::string_view text_;
  size_t at_;
};

}  // namespace

std::string_view json_of_python_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  return {};
}

std::optional<std::string> python_value_as_json(std::string_view text) {
  PythonReader reader(text, 0);
  std::string out;
  if (!reader.value(1, out) || skip_json_space(text, reader.at()) < text.size()) {
    return std::nullopt;
  }
  return out;
}

std::optional<WrittenCall> read_python_call(std::string_view text, size_t& at) {
  PythonReader reader(text, at);
  const std::string_view name = reader.identifier();
  if (name.empty() || !reader.take('(')) return std::nullopt;
  WrittenCall call{.name = std::string(name), .arguments = "{"};
  std::unordered_set<std::string_view> names;
  for (bool first = true; !reader.take(')'); first = false) {
    if (!first && !reader.take(',')) return std::nullopt;
    if (!first && reader.take(')')) break;
    const std::string_view key = reader.identifier();
    // A name given twice is an error in Python, too: one of the values would be lost.
    if (key.empty() || !reader.take('=') || !names.insert(key).second) return std::nullopt;
    if (!first) call.arguments += ", ";
    base::append_json_string(call.arguments, key);
    call.arguments += ": ";
    if (!reader.value(1, call.arguments)) return std::nullopt;
  }
  call.arguments += '}';
  at = reader.at();
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
