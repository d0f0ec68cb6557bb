// How many clients' connections the server is asked to take, and as many descriptors for them as
// the system allows. That enough are left for everything else is net's (descriptors_spared).
#pragma once

#include "cli/command_line.h"

namespace pelton::apps {

cli::Flag connections_flag();

// Raises this process's soft limit of descriptors to its hard one first.
int connections_max(const cli::Arguments& arguments);

}  // namespace pelton::apps
