// Shell completion, from the same descriptions as --help. What can only be known at the prompt,
// names of models, the script asks the program for: `pelton completion models`. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace pelton::cli {

std::string bash_completion(const CommandLine::Program& program, const std::vector<Verb>& verbs);
std::string zsh_completion(const CommandLine::Program& program, const std::vector<Verb>& verbs);
std::string fish_completion(const CommandLine::Program& program, const std::vector<Verb>& verbs);

}  // namespace pelton::cli
