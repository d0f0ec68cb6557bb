// pelton plan of a speech model: what `serve` would claim of this machine's memory for it. Main
// thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

// The folder of a model that turns sound into text; nothing: it is none, or not on this machine.
std::optional<std::string> speech_model_folder(const std::string& model);

// Errors: those of its files; kDoesNotFit.
Result<void> plan_speech(const cli::Arguments& arguments, const std::string& model,
                         const std::string& folder);

}  // namespace pelton::apps
