// pelton plan of a speech model: what `serve` would claim of this machine's memory for it, and how
// much sound this machine, or another, turns into text. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "planner/speech_plan.h"

namespace pelton::apps {

// The folder of a model that turns sound into text; nothing: it is none, or not on this machine.
std::optional<std::string> speech_model_folder(const std::string& model);

// Flags of such models alone, given for another one.
Result<void> refuse_speech_flags(const cli::Arguments& arguments, const std::string& model);

// How much text a second of sound has, and how long a file is.
std::vector<cli::Flag> speech_load_flags();
// And what is wanted: hours of sound, live streams.
std::vector<cli::Flag> speech_target_flags();

// Hardware, memory, load; not the targets. Errors: those of its files; kUnsupported: --calibration.
Result<planner::SpeechPlanOptions> read_speech_plan(const cli::Arguments& arguments,
                                                    const std::string& model,
                                                    const std::string& folder);

// Errors: those of its files; kDoesNotFit.
Result<void> plan_speech(const cli::Arguments& arguments, const std::string& model,
                         const std::string& folder);

}  // namespace pelton::apps
