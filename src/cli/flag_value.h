// What a word given for a flag comes to. Pure functions, shared by words, variables and files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::cli {

// Of a kind that has a number: that number, within the flag's bounds.
Result<double> flag_number(const Flag& flag, const std::string& text);
Result<void> check_choice(const Flag& flag, const std::string& text);
// On or off; empty: neither.
std::optional<bool> switch_value(std::string_view text);

}  // namespace pelton::cli
