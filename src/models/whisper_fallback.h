// A window's text that can be believed: decoded anew at higher temperatures while it repeats itself
// or is unlikely (openai/whisper's transcribe.py). One window; pure but for the model's working
// memory.
#pragma once

#include <functional>
#include <span>

#include "base/token_id.h"
#include "models/whisper_decoding.h"

namespace pelton::models {

// How many times fewer bytes a compressor makes of the text of these tokens: above
// kWhisperRepetitive it repeats itself.
using CompressionOf = std::function<double(std::span<const TokenId> text)>;
inline constexpr double kWhisperRepetitive = 2.4;

struct WhisperAttempt {
  WhisperText text;
  double temperature = 0.0;
  double compression_ratio = 0.0;  // 0: nobody compresses
  bool is_silence = false;         // nobody speaks, whatever the text is
};

struct WhisperTemperatures {
  double first = 0.0;
  bool falls_back = true;  // by 0.2 up to 1, where the text is doubtful
};

// `task_at`: the task at a temperature. The last attempt; of one that `go_on` ends the text is what
// there is.
WhisperAttempt decode_with_fallback(Whisper& model, WhisperWindow& window,
                                    const std::function<WhisperTask(double temperature)>& task_at,
                                    const WhisperTemperatures& temperatures,
                                    const CompressionOf& compression,
                                    const std::function<bool()>& go_on);

}  // namespace pelton::models
