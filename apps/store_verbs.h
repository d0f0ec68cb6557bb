// The verbs of what servers keep on a disk: pelton store.
#pragma once

#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

std::vector<cli::Verb> store_verbs();

}  // namespace pelton::apps
