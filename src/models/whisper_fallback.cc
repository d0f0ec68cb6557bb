#include "models/whisper_fallback.h"

#include <utility>
#include <vector>

namespace pelton::models {
namespace {

constexpr double kNoSpeech = 0.6;
constexpr double kUnlikely = -1.0;
constexpr double kStep = 0.2;
constexpr double kHighest = 1.0;

}  // namespace

WhisperAttempts::WhisperAttempts(Whisper& model, WhisperWindow& window, Parts parts)
    : model_(model), window_(window), parts_(std::move(parts)) {
  made_.temperature = parts_.temperatures.first;
  begin();
}

void WhisperAttempts::begin() {
  decoding_.emplace(model_, window_, parts_.task_at(made_.temperature), parts_.go_on);
}

std::optional<TokenId> WhisperAttempts::next() {
  for (;;) {
    if (const auto token = decoding_->next()) return token;
    const double higher = made_.temperature + kStep;
    const bool is_last = !parts_.temperatures.falls_back || higher > kHighest + 1e-6;
    if (is_good() || is_last || !parts_.go_on()) return std::nullopt;
    made_.temperature = higher;
    begin();
  }
}

// Whether its text can be believed, or nobody speaks.
bool WhisperAttempts::is_good() {
  made_.text = decoding_->text();
  std::vector<TokenId> said = made_.text.tokens;
  std::erase_if(said, [end = model_.config().end_of_text](TokenId id) { return id >= end; });
  made_.compression_ratio = parts_.compression ? parts_.compression(said) : 0.0;
  const double logprob = made_.text.average_logprob;
  made_.is_silence = made_.text.no_speech > kNoSpeech && logprob <= kUnlikely;
  return made_.is_silence ||
         (made_.compression_ratio <= kWhisperRepetitive && logprob >= kUnlikely);
}

WhisperAttempt WhisperAttempts::last() {
  made_.text = decoding_->text();
  return std::move(made_);
}

WhisperAttempt decode_with_fallback(Whisper& model, WhisperWindow& window,
                                    const WhisperAttempts::Parts& parts) {
  WhisperAttempts attempts(model, window, parts);
  for (auto token = attempts.next(); token && parts.go_on(); token = attempts.next()) {
    attempts.take(model.step(window, {&*token, 1}));
  }
  return attempts.last();
}

}  // namespace pelton::models
