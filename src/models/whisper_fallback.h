// A window's text that can be believed: decoded anew at higher temperatures while it repeats itself
// or is unlikely (openai/whisper's transcribe.py). One window; pure but for the model's working
// memory.
#pragma once

#include <functional>
#include <optional>
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

// The attempts at one window, a token at a time, as WindowDecoding. The window and what it is made
// of outlive it.
class WhisperAttempts {
 public:
  struct Parts {
    std::function<WhisperTask(double temperature)> task_at;
    WhisperTemperatures temperatures;
    CompressionOf compression;
    std::function<bool()> go_on;
  };
  WhisperAttempts(Whisper& model, WhisperWindow& window, Parts parts);

  // What the window is to be given next; nothing: the last attempt is over. One that is doubtful
  // is followed by the next here.
  std::optional<TokenId> next();
  void take(std::span<const float> logits) { decoding_->take(logits); }
  // The last one; of one that is not over the text is what there is.
  WhisperAttempt last();

 private:
  void begin();
  bool is_good();

  Whisper& model_;
  WhisperWindow& window_;
  const Parts parts_;
  WhisperAttempt made_;
  std::optional<WindowDecoding> decoding_;
};

// Of one window alone.
WhisperAttempt decode_with_fallback(Whisper& model, WhisperWindow& window,
                                    const WhisperAttempts::Parts& parts);

}  // namespace pelton::models
