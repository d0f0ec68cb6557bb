// What `pelton serve` says of the speech models among its models, and how one is loaded.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "node/loaded_speech_model.h"
#include "node/model_names.h"
#include "server/served_model.h"

namespace pelton::apps {

// --max-audio-bytes --max-audio-seconds --transcription-batch
// --transcription-beams --max-num-transcriptions.
std::vector<cli::Flag> transcription_flags();

// Without threads, budget and name. `kernels`: --kernels.
node::LoadedSpeechModel::Options speech_options(const cli::Arguments& arguments,
                                                const std::string& kernels);

// As the server sees it; `model` outlives it.
server::ServedModel served_speech_model(const cli::Arguments& arguments, const std::string& folder,
                                        node::LoadedSpeechModel& model,
                                        const node::NamedModel& names, const base::Clock& clock);

// "whisper: avx512 kernels; transcribes ...".
std::string speech_line(const cli::Arguments& arguments, const node::LoadedSpeechModel& model,
                        const std::string& id);

// How files are read, of at most so many seconds.
speech::ReadSound sound_reader(double seconds_max);

}  // namespace pelton::apps
