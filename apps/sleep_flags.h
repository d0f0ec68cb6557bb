// serve's flags of models that sleep: --sleep-after, --enable-sleep-mode.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

std::vector<cli::Flag> sleep_flags();

// Of --sleep-after; none: models do not. Errors: kInvalidArgument.
Result<std::optional<int64_t>> sleep_after_ns(const cli::Arguments& arguments);

}  // namespace pelton::apps
