// --speech-decoder and what else says how a served model's tokens become sound: of `serve`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "node/model_names.h"
#include "server/served_model.h"

namespace pelton::apps {

std::vector<cli::Flag> speech_flags();

// Whether each word of --speech-decoder says which of these models it is of. Errors:
// kInvalidArgument.
Result<void> check_speech_decoders(const cli::Arguments& arguments,
                                   const std::vector<node::NamedModel>& models);

// Fills served.speech, if the flags have a decoder for a model of these names: words that name no
// model are meant where `has_unnamed`. Errors: kInvalidArgument naming the flag, and those of the
// decoder's files.
struct SpeechOwner {
  std::vector<std::string> names = {};
  bool has_unnamed = true;
};
// A hub id that is not on this machine is fetched, unless `stopped` (kCancelled).
struct SpeechLoad {
  const std::function<bool()>& stopped;
  const base::Clock& clock;
  base::Log& log;
};
Result<void> read_speech(const cli::Arguments& arguments, const SpeechOwner& owner,
                         const SpeechLoad& load, server::ServedModel& served);

}  // namespace pelton::apps
