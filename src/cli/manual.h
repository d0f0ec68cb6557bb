// Manual pages in roff, from the same descriptions as --help. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace pelton::cli {

// pelton(1): what there is.
std::string manual(const CommandLine::Program& program, const std::vector<Verb>& verbs);
// pelton-serve(1): one verb.
std::string manual(const CommandLine::Program& program, const Verb& verb);
// "bench serve" of "pelton" -> "pelton-bench-serve".
std::string manual_name(const CommandLine::Program& program, const Verb& verb);

}  // namespace pelton::cli
