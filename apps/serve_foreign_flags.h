// The flags of `vllm serve` and of SGLang's launch_server that `serve` does not have under their
// names: what becomes of each. docs/pasted_commands.md shows them.
#pragma once

#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

std::vector<cli::ForeignFlag> serve_foreign_flags();

}  // namespace pelton::apps
