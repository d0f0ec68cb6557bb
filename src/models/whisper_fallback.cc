#include "models/whisper_fallback.h"

#include <vector>

namespace pelton::models {
namespace {

constexpr double kNoSpeech = 0.6;
constexpr double kUnlikely = -1.0;
constexpr double kStep = 0.2;
constexpr double kHighest = 1.0;

}  // namespace

WhisperAttempt decode_with_fallback(Whisper& model, WhisperWindow& window,
                                    const std::function<WhisperTask(double temperature)>& task_at,
                                    const WhisperTemperatures& temperatures,
                                    const CompressionOf& compression,
                                    const std::function<bool()>& go_on) {
  const TokenId end_of_text = model.config().end_of_text;
  WhisperAttempt made{.text = {}, .temperature = temperatures.first};
  for (;;) {
    made.text = decode_window(model, window, task_at(made.temperature), go_on);
    if (!go_on()) return made;
    std::vector<TokenId> said = made.text.tokens;
    std::erase_if(said, [&](TokenId id) { return id >= end_of_text; });
    made.compression_ratio = compression ? compression(said) : 0.0;
    const double logprob = made.text.average_logprob;
    made.is_silence = made.text.no_speech > kNoSpeech && logprob <= kUnlikely;
    const bool is_doubtful = made.compression_ratio > kWhisperRepetitive || logprob < kUnlikely;
    const double next = made.temperature + kStep;
    if (!temperatures.falls_back || made.is_silence || !is_doubtful) return made;
    if (next > kHighest + 1e-6) return made;
    made.temperature = next;
  }
}

}  // namespace pelton::models
