// The flag of `pelton serve` and `pelton gateway` that says where there is a web console, and for
// whom.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

// --console, off or chat where nothing is said.
std::vector<cli::Flag> console_flags(std::string default_text);

// At the public listener: chat and models.
bool has_console(const cli::Arguments& arguments);

}  // namespace pelton::apps
