// Words: cut apart, compared, complained about. Pure functions, for this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cli {

// Of the variables that stand in for flags.
inline constexpr std::string_view kVariablePrefix = "PELTON_";

Error usage_error(std::string message, std::string field);

// "; did you mean 'x'?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// At single blanks.
std::vector<std::string> split_words(const std::string& text);

}  // namespace pelton::cli
