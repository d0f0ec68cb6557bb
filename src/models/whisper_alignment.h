// When each token of a window was said: by how the decoder's alignment heads look at the sound, as
// a monotone path through it (openai/whisper, timing.py). Pure but for the model's working memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "models/whisper.h"

namespace pelton::models {

struct AlignedToken {
  double begin_s = 0.0;  // in the window
  double end_s = 0.0;
  double probability = 0.0;
};

// `text`: of the window, without timestamps; `prompt`: start, language, task. `frames`: of the
// spectrogram that are sound. Empty if the model does not say which heads to ask, or there is no
// text.
std::vector<AlignedToken> align(Whisper& model, WhisperWindow& window,
                                std::span<const TokenId> prompt, std::span<const TokenId> text,
                                int64_t frames);

// The cheapest path from (0, 0) to the last row and column of a cost (rows, columns), by steps to
// the next row, the next column or both: for each row the column at which it is entered.
// Example: {{0, 1, 1}, {1, 0, 0}} is entered at 0 and 1.
std::vector<int> cheapest_entries(std::span<const double> cost, int rows, int columns);

}  // namespace pelton::models
