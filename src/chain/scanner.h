// The small parts of an expression's text: names, numbers, texts in single quotes, signs. Blanks
// between them are skipped. A value on the stack of its parser.
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/json.h"
#include "base/result.h"

namespace pelton::chain {

// A letter or '_', then letters, digits or '_'.
inline bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool in_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  // For messages: "'foo'", "the end".
  std::string here() {
    if (at_end()) return "the end";
    constexpr size_t kShown = 16;
    return fmt::format("'{}'", text_.substr(at_, kShown));
  }

  bool take(std::string_view sign) {
    skip_blanks();
    return take_adjacent(sign);
  }
  // Without blanks before it.
  bool take_adjacent(std::string_view sign) {
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }
  // That is not the beginning of a longer one.
  bool take_word(std::string_view word) {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(word)) return false;
    if (rest.size() > word.size() && in_name(rest[word.size()])) return false;
    at_ += word.size();
    return true;
  }
  // Empty: there is none here.
  std::string take_name() {
    skip_blanks();
    if (at_ == text_.size() || !begins_name(text_[at_])) return {};
    const size_t begin = at_;
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  // A number, a text, true, false or null; none: something else stands here.
  Result<std::optional<Json>> take_literal() {
    if (take_word("true")) return std::optional(Json(true));
    if (take_word("false")) return std::optional(Json(false));
    if (take_word("null")) return std::optional(Json());
    if (take("'")) {
      const size_t end = text_.find('\'', at_);
      if (end == std::string_view::npos) {
        return Error{ErrorCode::kInvalidArgument, "has a text without its closing quote", {}};
      }
      Json text(text_.substr(at_, end - at_));
      at_ = end + 1;
      return std::optional(std::move(text));
    }
    return take_number();
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }
  Result<std::optional<Json>> take_number() {
    const std::string_view rest = text_.substr(at_);
    const bool begins =
        !rest.empty() && ((rest[0] >= '0' && rest[0] <= '9') ||
                          (rest[0] == '-' && rest.size() > 1 && rest[1] >= '0' && rest[1] <= '9'));
    if (!begins) return std::optional<Json>();
    const char* const begin = rest.data();
    const char* const end = begin + rest.size();
    double number = 0;
    const auto [behind, failed] = std::from_chars(begin, end, number);
    int64_t integer = 0;
    const auto [behind_integer, no_integer] = std::from_chars(begin, end, integer);
    if (failed != std::errc() || !std::isfinite(number)) {
      return Error{ErrorCode::kInvalidArgument, "has a number that is too large", {}};
    }
    at_ += static_cast<size_t>(behind - begin);
    const bool is_integer = no_integer == std::errc() && behind_integer == behind;
    return std::optional(is_integer ? Json(integer) : Json(number));
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace pelton::chain
