// Text for a terminal: what foreign text may show there, and words and tables laid out within its
// columns. Pure functions; a code point counts as one column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pelton::base {

// A stranger's text as a terminal may show it: control characters (but not newline and tab) are
// dropped, so that a model's answer cannot move the cursor or retitle the window. Bytes above 127
// pass; C1 controls in UTF-8 (C2 80 .. C2 9F) are dropped too when they stand whole in `text`.
std::string without_controls(std::string_view text);

// The same for a name or a message within a line: newlines and tabs become blanks, what is not
// UTF-8 becomes U+FFFD.
std::string one_line(std::string_view text);

int text_columns(std::string_view text);

// Broken at blanks into lines of at most `width` columns (0: as many as it takes), each behind
// `indent` blanks and ended by a newline. A longer word stands alone on its line.
std::string wrapped_text(std::string_view text, int width, int indent);

struct TextTable {
  std::vector<std::string> headers;            // may be empty
  std::vector<std::vector<std::string>> rows;  // the first cell names the row, at its left
};
// Within `width` columns (0: as many as it takes): headers are broken at blanks, and columns that
// still find no place follow below, behind the rows' names. `indent` blanks before each line.
std::string text_table(const TextTable& table, int width, int indent);

}  // namespace pelton::base
