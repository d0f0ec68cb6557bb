// What the terminal can do: width, dim and bold text. Colour only on a terminal, and never when
// NO_COLOR is set. A value; any thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace pelton::cli {

bool is_terminal(std::FILE* file);

class Terminal {
 public:
  explicit Terminal(std::FILE* file);

  bool styled() const { return styled_; }
  bool interactive() const { return interactive_; }  // a terminal, styled or not
  int width() const;                                 // columns; 80 if unknown

  // The text with its style, or as it is.
  std::string dim(std::string_view text) const { return wrap("\x1b[2m", text); }
  std::string bold(std::string_view text) const { return wrap("\x1b[1m", text); }

  // For text that streams: begin and end on their own.
  std::string_view dim_begin() const { return styled_ ? "\x1b[2m" : ""; }
  std::string_view style_end() const { return styled_ ? "\x1b[0m" : ""; }

 private:
  std::string wrap(std::string_view begin, std::string_view text) const;

  std::FILE* file_;
  bool interactive_ = false;
  bool styled_ = false;
};

// A stranger's text as a terminal may show it: control characters (but not newline and tab) are
// dropped, so that a model's answer cannot move the cursor or retitle the window. Bytes above 127
// pass; C1 controls in UTF-8 (C2 80 .. C2 9F) are dropped too when they stand whole in `text`.
std::string without_controls(std::string_view text);

}  // namespace pelton::cli
