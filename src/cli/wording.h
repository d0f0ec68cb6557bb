// Words: cut apart, compared, complained about. Pure functions, for this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::cli {

// Of the variables that stand in for flags.
inline constexpr std::string_view kVariablePrefix = "PELTON_";

Error usage_error(std::string message, std::string field);

// A complaint about a value that did not come as a word says where it came from: "$PELTON_PORT",
// "pelton.toml:3". It is the configuration then that is wrong, not the command line.
Error with_origin(Error error, const std::string& origin);

// "; did you mean 'x'?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// "--backend openai or vllm", "--gpu or --instance".
std::string in_words(const Circumstance& circumstance);
std::string in_words(const std::vector<Circumstance>& any_of);

// A flag's help with its choices, other names, circumstances and default.
std::string whole_help(const Flag& flag);

// At single blanks.
std::vector<std::string> split_words(const std::string& text);

}  // namespace pelton::cli
