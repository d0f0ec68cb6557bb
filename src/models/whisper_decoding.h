// How Whisper's logits become tokens: its masks in their order, language detection, the
// likeliest tokens or some drawn at a temperature.
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

struct WhisperTask {
  TokenId language = -1;  // -1: none is named (English-only models)
  bool translates = false;
  bool timestamps = true;
  std::vector<TokenId> previous;  // text before the window, or a prompt; its end is used
  std::vector<TokenId> begun;     // the window's first tokens, where they stand already
  int tokens_max = 224;
  double temperature = 0.0;  // 0: the likeliest token each time
  uint64_t seed = 0;         // of what is drawn otherwise
};
// What the decoder is given first: [previous], start, language, task, whether there are timestamps.
std::vector<TokenId> whisper_prompt(const WhisperConfig& config, const WhisperTask& task);

struct WhisperText {
  std::vector<TokenId> tokens;   // timestamps among them; without the end of text
  double average_logprob = 0.0;  // of those behind `begun`
  double no_speech = 0.0;        // its probability
  bool ended = false;            // by itself, not by tokens_max
};
// `go_on` is asked before each token; where it says no, what there is is given.
WhisperText decode_window(Whisper& model, WhisperWindow& window, const WhisperTask& task,
                          const std::function<bool()>& go_on);

}  // namespace pelton::models
