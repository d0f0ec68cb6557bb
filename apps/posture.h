#pragma once

#include "cli/command_line.h"

namespace pelton::apps {

cli::Verb posture_verb();

}  // namespace pelton::apps
