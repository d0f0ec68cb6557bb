// What the terminal can do: width, dim and bold text. Colour only on a terminal, and never when
// NO_COLOR is set. A value; any thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/terminal_text.h"

namespace pelton::cli {

bool is_terminal(std::FILE* file);

class Terminal {
 public:
  explicit Terminal(std::FILE* file);

  bool styled() const { return styled_; }
  bool interactive() const { return interactive_; }  // a terminal, styled or not
  int width() const;                                 // columns; 80 if unknown
  // For text that is laid out once, as help and tables are: $COLUMNS, the terminal's columns, or
  // `otherwise` where neither is known.
  int text_width(int otherwise) const;

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

using base::without_controls;

}  // namespace pelton::cli
