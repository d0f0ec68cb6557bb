// What a verb would run with, and where each value came from, as a configuration file that says the
// same again.
#pragma once

#include <string>

#include "cli/command_line.h"

namespace pelton::cli {

std::string effective_config(const CommandLine::Program& program, const Verb& verb,
                             const Arguments& arguments);

}  // namespace pelton::cli
