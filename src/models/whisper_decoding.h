// How Whisper's logits become tokens: its masks in their order, language detection, the likeliest
// tokens, the likeliest of several texts (whisper_beams.h), or some drawn at a temperature.
// One window; pure but for the model's working memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "models/whisper.h"

namespace pelton::models {

// What may not come next becomes minus infinity. `generated`: behind the prompt, so far.
struct WhisperMasks {
  bool timestamps = true;
};
void mask_logits(std::span<float> logits, std::span<const TokenId> generated,
                 const WhisperConfig& config, const WhisperMasks& masks);

// The probability of each of config.languages, by the sound alone. The window is as before.
std::vector<double> language_probabilities(Whisper& model, WhisperWindow& window);

// How a text is searched for (openai/whisper's decoding options).
struct WhisperSearch {
  int beam_size = 1;  // at temperature 0: so many texts are followed
  // Of beams: it ends when beam_size times so many texts have.
  double patience = 1.0;
  int best_of = 1;  // at others: so many texts are drawn
  // Which of them is the best: the sum of its log-probabilities divided by ((5 + tokens) / 6) to
  // this power; none: by its tokens.
  std::optional<double> length_penalty = {};
};
constexpr int kWhisperBeamsMax = 16;

struct WhisperTask {
  TokenId language = -1;  // -1: none is named (English-only models)
  bool translates = false;
  bool timestamps = true;
  std::vector<TokenId> previous;  // text before the window, or a prompt; its end is used
  std::vector<TokenId> begun;     // the window's first tokens, where they stand already
  int tokens_max = 224;
  double temperature = 0.0;  // 0: the likeliest token each time
  uint64_t seed = 0;         // of what is drawn otherwise
  WhisperSearch search = {};
};
// What the decoder is given first: [previous], start, language, task, whether there are timestamps.
std::vector<TokenId> whisper_prompt(const WhisperConfig& config, const WhisperTask& task);

struct WhisperText {
  std::vector<TokenId> tokens;   // timestamps among them; without the end of text
  double average_logprob = 0.0;  // of those behind `begun`
  double no_speech = 0.0;        // its probability
  bool ended = false;            // by itself, not by tokens_max
};
// One of the texts that a window might have, behind what stands already.
struct WhisperCandidate {
  std::vector<TokenId> tokens;
  double logprob = 0.0;  // of them, and of the end where it has come
  bool ended = false;
};
// By which candidates are ranked: the highest is the best.
double candidate_score(const WhisperCandidate& candidate, const WhisperSearch& search);
// The logits of what follows become log-probabilities: masked (mask_logits), then each less the
// logarithm of their sum.
void to_logprobs(std::span<float> logits, std::span<const TokenId> generated,
                 const WhisperConfig& config, const WhisperMasks& masks);

// One window's text on its way, a token at a time, so that windows of several recordings can share
// the decoder's steps. The window outlives it.
class WindowDecoding {
 public:
  // Gives the window the prompt. Beams, and the best of several texts, are followed to their end
  // here, asking `go_on` before each token.
  WindowDecoding(Whisper& model, WhisperWindow& window, WhisperTask task,
                 const std::function<bool()>& go_on);

  // What the window is to be given next; nothing: the text is whole.
  std::optional<TokenId> next() const;
  // The logits of what follows that token.
  void take(std::span<const float> logits);
  WhisperText text() const;  // so far

 private:
  const WhisperConfig& config_;
  const WhisperWindow& window_;
  const WhisperTask task_;
  WhisperCandidate drawn_;
  double no_speech_ = 0.0;
  bool is_over_ = false;
};

// `go_on` is asked before each token; where it says no, what there is is given.
WhisperText decode_window(Whisper& model, WhisperWindow& window, const WhisperTask& task,
                          const std::function<bool()>& go_on);

}  // namespace pelton::models
