#include "jinja/lexer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::jinja {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

bool is_space_byte(char c) {
  return kSpace.find(c) != std::string_view::npos;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool in_name(char c) {
  return begins_name(c) || is_digit(c);
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// What Python's "unicode_escape" makes of a string's inside; what is no escape stays.
std::string unescape(std::string_view text) {
  static constexpr std::string_view kLetters = "nrtbfav\\'\"";
  static constexpr std::string_view kMeanings = "\n\r\t\b\f\a\v\\'\"";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    const size_t letter = kLetters.find(c);
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (letter != std::string_view::npos) {
      out += kMeanings[letter];
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = i;
      while (end < std::min(i + 3, text.size()) && text[end] >= '0' && text[end] <= '7') {
        value = value * 8 + static_cast<uint32_t>(text[end++] - '0');
      }
      base::append_utf8(out, value);
      i = end - 1;
    } else if (c != '\n') {  // a line that goes on
      const std::string_view hex = text.substr(i + 1, digits);
      const bool is_hex =
          digits > 0 && hex.size() == digits &&
          std::all_of(hex.begin(), hex.end(), [](char h) { return hex_value(h) >= 0; });
      uint32_t value = 0;
      for (const char h : is_hex ? hex : "")
        value = value * 16 + static_cast<uint32_t>(hex_value(h));
      if (!is_hex || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        out += '\\';
        out += c;
      } else {
        base::append_utf8(out, value);
        i += digits;
      }
    }
  }
  return out;
}

// Line ends are "\n", and the last one is not the template's.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool is_pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!is_pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag(at_);
      add_text(at_, tag, tag);
      if (tag == text_.size()) break;
      TRY(read_tag(tag));
    }
    push(Token::Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  void move_to(size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    at_ = at;
  }
  void push(Token::Kind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  Error bad(std::string_view message) const { return at_line(line_, message); }

  size_t next_tag(size_t from) const {
    for (size_t i = text_.find('{', from); i != std::string_view::npos;
         i = text_.find('{', i + 1)) {
      if (i + 1 < text_.size() &&
          std::string_view("{%#").find(text_[i + 1]) != std::string_view::npos) {
        return i;
      }
    }
    return text_.size();
  }

  char sign_at(size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : ' ';
  }

  // Text up to `end`, where the tag at `tag` takes its share of white space.
  void add_text(size_t begin, size_t end, size_t tag) {
    std::string_view text = text_.substr(begin, end - begin);
    if (tag < text_.size()) {
      const char sign = sign_at(tag + 2);
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kSpace) + 1);
      } else if (sign != '+' && text_[tag + 1] != '{') {
        const size_t newline = text.rfind('\n');
        const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
        const bool at_line_start = line > 0 || begin == 0 || text_[begin - 1] == '\n';
        if (at_line_start && text.find_first_not_of(kSpace, line) == std::string_view::npos) {
          text = text.substr(0, line);
        }
      }
    }
    if (!text.empty()) push(Token::Kind::kText, std::string(text));
    move_to(end);
  }

  // Behind a tag: "-" takes white space; a block or comment takes the end of its line, unless "+".
  void after_tag(size_t end, char sign, bool is_print) {
    if (sign == '-') {
      while (end < text_.size() && is_space_byte(text_[end])) ++end;
    } else if (!is_print && sign != '+' && end < text_.size() && text_[end] == '\n') {
      ++end;
    }
    move_to(end);
  }

  Result<void> read_tag(size_t tag) {
    const char kind = text_[tag + 1];
    if (kind == '#') return read_comment(tag);
    const size_t inside = tag + 2 + (sign_at(tag + 2) == ' ' ? 0 : 1);
    if (kind == '%') {
      if (const size_t raw = behind_word(inside, "raw"); raw != 0) return read_raw(raw);
    }
    push(kind == '{' ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin);
    move_to(inside);
    return read_expression(kind == '{');
  }

  Result<void> read_comment(size_t tag) {
    const size_t end = text_.find("#}", tag + 2);
    if (end == std::string_view::npos) return bad("a comment has no end: '#}' is missing");
    after_tag(end + 2, end > tag + 2 ? sign_at(end - 1) : ' ', false);
    return {};
  }

  // "raw %}" or "endraw -%}" at `at`: where it ends, its sign before; 0 if it is something else.
  size_t behind_word(size_t at, std::string_view word) {
    while (at < text_.size() && is_space_byte(text_[at])) ++at;
    if (text_.substr(at, word.size()) != word) return 0;
    at += word.size();
    while (at < text_.size() && is_space_byte(text_[at])) ++at;
    raw_sign_ = sign_at(at);
    if (raw_sign_ != ' ') ++at;
    return text_.substr(at, 2) == "%}" ? at + 2 : 0;
  }

  Result<void> read_raw(size_t begin) {
    if (raw_sign_ == '-') {
      after_tag(begin, '-', false);
    } else {
      move_to(begin);
    }
    for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 2)) {
      const size_t inside = tag + 2 + (sign_at(tag + 2) == ' ' ? 0 : 1);
      const size_t end = behind_word(inside, "endraw");
      if (end == 0) continue;
      const char sign = raw_sign_;
      add_text(at_, tag, tag);
      after_tag(end, sign, false);
      return {};
    }
    return bad("{% raw %} has no {% endraw %}");
  }

  // Up to the end of the tag.
  Result<void> read_expression(bool is_print) {
    const std::string_view end = is_print ? "}}" : "%}";
    std::string open;  // brackets
    while (true) {
      size_t at = at_;
      while (at < text_.size() && is_space_byte(text_[at])) ++at;
      move_to(at);
      if (at == text_.size()) return bad(fmt::format("a tag has no end: '{}' is missing", end));
      if (open.empty()) {
        const char sign = sign_at(at);
        const size_t signed_end = sign == '-' || (sign == '+' && !is_print) ? at + 1 : at;
        if (text_.substr(signed_end, 2) == end) {
          push(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd);
          after_tag(signed_end + 2, signed_end == at ? ' ' : sign, is_print);
          return {};
        }
      }
      TRY(read_word(open));
    }
  }

  Result<void> read_word(std::string& open) {
    const char c = text_[at_];
    if (begins_name(c)) {
      size_t end = at_;
      while (end < text_.size() && in_name(text_[end])) ++end;
      push(Token::Kind::kName, std::string(text_.substr(at_, end - at_)));
      move_to(end);
      return {};
    }
    if (c == '"' || c == '\'') return read_string(c);
    if (is_digit(c)) {
      read_number();
      return {};
    }
    return read_operator(open);
  }

  Result<void> read_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return bad("a string has no end");
    push(Token::Kind::kString, unescape(text_.substr(at_ + 1, end - at_ - 1)));
    move_to(end + 1);
    return {};
  }

  void read_number() {
    std::string digits;
    size_t at = at_;
    bool is_float = false;
    const auto take_digits = [&] {
      for (; at < text_.size(); ++at) {
        const bool separates = text_[at] == '_' && at + 1 < text_.size() && is_digit(text_[at + 1]);
        if (!is_digit(text_[at]) && !separates) break;
        if (!separates) digits += text_[at];
      }
    };
    take_digits();
    if (at + 1 < text_.size() && text_[at] == '.' && is_digit(text_[at + 1])) {
      is_float = true;
      digits += text_[at++];
      take_digits();
    }
    if (at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      const size_t sign = sign_at(at + 1) == ' ' ? 0 : 1;
      if (at + 1 + sign < text_.size() && is_digit(text_[at + 1 + sign])) {
        is_float = true;
        digits += text_.substr(at, 1 + sign);
        at += 1 + sign;
        take_digits();
      }
    }
    push(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(digits));
    move_to(at);
  }

  Result<void> read_operator(std::string& open) {
    static constexpr std::string_view kTwo[] = {"**", "//", "==", "!=", ">=", "<="};
    const std::string_view two = text_.substr(at_, 2);
    const bool is_two = std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo);
    const std::string_view word = is_two ? two : two.substr(0, 1);
    if (!is_two &&
        std::string_view("+-/*%~[](){}><=.:|,;").find(word[0]) == std::string_view::npos) {
      return bad(fmt::format("unexpected character '{}'", word));
    }
    static constexpr std::string_view kOpening = "([{";
    static constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(word[0]) != std::string_view::npos) open += word[0];
    if (const size_t kind = kClosing.find(word[0]); kind != std::string_view::npos) {
      if (open.empty() || open.back() != kOpening[kind]) {
        return bad(fmt::format("unexpected '{}'", word));
      }
      open.pop_back();
    }
    push(Token::Kind::kOperator, std::string(word));
    move_to(at_ + word.size());
    return {};
  }

  const std::string source_;
  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  char raw_sign_ = ' ';
  std::vector<Token> tokens_;
};

}  // namespace

Error at_line(int line, std::string_view message) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = fmt::format("line {}: {}", line, message),
          .field = {}};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace pelton::jinja
