// What a process that holds other people's words does about the machine around it.
#pragma once

#include <vector>

#include "base/log.h"
#include "cli/command_line.h"

namespace pelton::apps {

// --allow-core-dumps.
std::vector<cli::Flag> guard_flags();

// No core dumps, and no looking in for other processes of this user, unless allowed.
void guard_process(const cli::Arguments& arguments, base::Log& log);

}  // namespace pelton::apps
