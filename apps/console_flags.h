// The flag that says for whom there is a web console: clients, at the listener of the API;
// operators, at the admin listener. Operators' pages are never at a listener that clients reach.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

// --console of `pelton serve` and `pelton gateway`: off, chat, operators or all.
std::vector<cli::Flag> console_flags(std::string default_text);
// Of `pelton autoscale`, which has no clients: off or operators.
cli::Flag operators_console_flag();

// At the public listener: chat, models, chains.
bool has_console(const cli::Arguments& arguments);
// At the admin listener.
bool has_operators_console(const cli::Arguments& arguments);

}  // namespace pelton::apps
