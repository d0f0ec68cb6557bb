// Variables of the environment that look like ours and that nobody reads: a slip in a name would
// otherwise go unseen. Looks at the environment; at the program's start.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace pelton::cli {

// A sentence for each $PELTON_... that stands for no flag of any of `verbs` and is none of
// `others` (CommandLine::Program::variables), with the nearest name where one is near. Values,
// which may be secrets, are not shown. What Kubernetes sets for a service called pelton
// (PELTON_SERVICE_HOST, PELTON_PORT_8000_TCP) is left out.
std::vector<std::string> unknown_variables(const std::vector<Verb>& verbs,
                                           const std::vector<std::string>& others);

}  // namespace pelton::cli
