// --admin, of the verbs that ask a running gateway.
#pragma once

#include "cli/command_line.h"

namespace pelton::apps {

cli::Flag admin_flag();

}  // namespace pelton::apps
