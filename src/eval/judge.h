// Whether an answer is right. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "eval/task.h"

namespace pelton::eval {

// A program is right where it has been run: none is here.
bool is_right(const Expectation& expected, const Answer& answer);

// The last number in a text, in its shortest decimal form: "It is $1,234.50." -> "1234.5". Empty:
// there is none.
std::optional<std::string> last_number(std::string_view text);

// The letter that a text chooses among the first `count`: the last of "answer is (B)", "Answer: B",
// "**B**" or a line that is a letter alone; else the only letter that stands alone as a word. Zero:
// none, or it is unclear.
char chosen_letter(std::string_view text, int count);

// A document, or a program, in a text: the text itself, or what stands between the first code
// fence's lines.
std::string_view json_in(std::string_view text);

}  // namespace pelton::eval
