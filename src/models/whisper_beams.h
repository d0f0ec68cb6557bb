// Beam search (openai/whisper's decoding.py): the likeliest few texts are followed side by side, a
// token each in one step of the decoder, until enough of them have ended. One window; pure but for
// the model's working memory.
#pragma once

#include <functional>
#include <span>

#include "models/whisper_decoding.h"

namespace pelton::models {

// The best of the texts. `window` has been given the prompt and task.begun; `logits`: of what
// follows. Of equally likely ones the one that came first, and the lower token. `go_on` is asked
// before each token; where it says no, it is the best so far.
WhisperCandidate follow_beams(Whisper& model, WhisperWindow& window, std::span<const float> logits,
                              const WhisperTask& task, const std::function<bool()>& go_on);

}  // namespace pelton::models
