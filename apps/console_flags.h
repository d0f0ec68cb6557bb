// The flags of `pelton serve` that say where there is a web console, and for whom.
#pragma once

#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

// --console.
std::vector<cli::Flag> console_flags();

// At the public listener: chat and models.
bool has_console(const cli::Arguments& arguments);

}  // namespace pelton::apps
