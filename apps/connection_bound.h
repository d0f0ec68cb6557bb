// How many clients' connections the server takes, so that descriptors are left for everything else:
// the operator's own port above all, which must answer when the public one is full.
#pragma once

#include "cli/command_line.h"

namespace pelton::apps {

cli::Flag connections_flag();

// Raises this process's soft limit of descriptors to its hard one first. What the flag says, or
// what the limit leaves if that is less.
int connections_max(const cli::Arguments& arguments);

}  // namespace pelton::apps
