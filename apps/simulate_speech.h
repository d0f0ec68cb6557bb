// pelton simulate of a speech model: files of sound on replicas in virtual time. Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

// How long files are, how much text they have, and serve's bounds on them.
std::vector<cli::Flag> simulated_speech_flags();

// Errors: those of its files; kDoesNotFit.
Result<void> simulate_speech_model(const cli::Arguments& arguments, const std::string& model,
                                   const std::string& folder);

}  // namespace pelton::apps
