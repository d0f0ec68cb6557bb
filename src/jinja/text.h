// A string of a template's run, which knows which of its bytes came from outside the template. So
// whoever tokenizes what a template printed lets only the template's own words become control
// tokens, never a user's. A value; any thread.
//
//   "<|user|>" + input "hi <|end|>" + "<|end|>"
//   -> bytes "<|user|>hi <|end|><|end|>", input {8, 18}
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pelton::jinja {

class Text {
 public:
  struct Range {
    size_t begin;
    size_t end;
  };

  Text() = default;
  explicit Text(std::string own) : bytes_(std::move(own)) {}
  static Text from_input(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Byte ranges from outside the template; in order, apart, none empty.
  const std::vector<Range>& input() const { return input_; }

  void append(std::string_view own) { bytes_ += own; }
  void append(const Text& other);
  Text slice(size_t begin, size_t size) const;
  // `bytes` made of this text in a way that has no use for positions: all of it is input if any of
  // this is.
  Text transformed(std::string bytes) const;

 private:
  std::string bytes_;
  std::vector<Range> input_;
};

// Code points of valid UTF-8; a byte that is none counts as one.
size_t code_point_count(std::string_view text);
// The byte where the code point `index` begins; text.size() if there is none.
size_t code_point_offset(std::string_view text, size_t index);

// What Python's str.strip() takes off, as a code point.
bool is_space(char32_t code_point);
// Where `part` begins in `text`, from `from` on; npos: nowhere. In linear time, whatever both are.
size_t find_text(std::string_view text, std::string_view part, size_t from);
// The bytes of white space at the front and at the end.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

enum class LetterCase { kUpper, kLower };
// ASCII, Latin-1, Greek and Cyrillic; other letters stay.
std::string to_case(std::string_view text, LetterCase letter_case);

}  // namespace pelton::jinja
