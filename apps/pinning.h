// serve --pin-prefix FILE: computes the beginning that many prompts share before the first request
// comes, and keeps it. Main thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/interrupt.h"
#include "server/served_model.h"

namespace pelton::apps {

// Returns when the file's tokens are pinned; `model.context_max` is lowered to what they leave room
// for. Errors name the file: kBadConfig, kDoesNotFit, kCancelled (Ctrl-C).
Result<void> pin_prefix(const std::string& file, server::ServedModel& model,
                        const cli::Interrupt& interrupt, const base::Clock& clock, base::Log& log);

}  // namespace pelton::apps
