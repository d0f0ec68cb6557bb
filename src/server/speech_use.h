// A served model that speaks: what its tokens mean, its voices, who decodes them, and what has come
// of it so far. Filled by whoever loads the model; immutable but for the meter. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar_state.h"
#include "speech/audio_tokens.h"
#include "speech/sound_encoder.h"
#include "speech/vocoder_queue.h"
#include "telemetry/histogram.h"

namespace pelton::server {

struct SpeechMeter {
  // From a request's arrival to the first sound that was handed to its connection.
  telemetry::Histogram first_audio_s{{0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60}};
  // Of each answer that came to its end: seconds of sound for each second from the request's
  // arrival to its last sound. A reader that is slow makes it slow.
  telemetry::Histogram speed{{0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 12, 20, 40, 80}};
  std::atomic<int64_t> samples = 0;  // of sound, handed to connections
  // Whoever had played a stream from its first sound on would have had none left.
  std::atomic<int64_t> underruns = 0;
};

struct SpeechUse {
  SpeechUse(speech::AudioTokens made_tokens, std::vector<std::string> made_voices,
            std::unique_ptr<speech::Vocoder> vocoder)
      : tokens(std::move(made_tokens)),
        grammar(tokens.grammar()),
        voices(std::move(made_voices)),
        queue(std::move(vocoder)) {}

  bool has_voice(std::string_view name) const {
    return std::ranges::find(voices, name) != voices.end();
  }

  const speech::AudioTokens tokens;
  const std::shared_ptr<const grammar::GrammarFsm> grammar;
  const std::vector<std::string> voices;
  // Set before it is shared.
  speech::CompressedSound compressed;
  SpeechMeter meter;
  speech::VocoderQueue queue;
};

}  // namespace pelton::server
