// A whole recording as segments of text with times: windows of 30 s, one behind the other, each
// decoded greedily with what came before as its prompt (openai/whisper's transcribe.py, at
// temperature 0). One thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/whisper_decoding.h"

namespace pelton::models {

struct WhisperSegment {
  double begin_s = 0.0;
  double end_s = 0.0;
  std::vector<TokenId> tokens;   // timestamps among them
  double average_logprob = 0.0;  // of its window
  double no_speech = 0.0;
};

struct Transcription {
  std::string language;  // as it was named, or detected; empty: the model knows only one
  double seconds = 0.0;  // of the recording
  std::vector<WhisperSegment> segments;  // in order, without overlap
};

struct TranscriptionTask {
  std::string language;  // empty: detected in the first window
  bool translates = false;
  bool timestamps = true;
  bool uses_previous = true;  // what was said before is the next window's prompt
};

// `mel` of any number of samples, float (bands, frames): audio::LogMel::of.
using MelOf = std::function<std::vector<float>(std::span<const float> samples)>;

// samples: of 16 kHz. `go_on` is asked between windows. Errors: kInvalidArgument of a language that
// the model does not know, or of a task that it has not; kCancelled.
Result<Transcription> transcribe(Whisper& model, std::span<const float> samples,
                                 const TranscriptionTask& task, const MelOf& mel,
                                 const std::function<bool()>& go_on);

}  // namespace pelton::models
