// Speculation: how many rows of guesses one step may have. The executor reserves rows of logits for
// them, and what estimates a step counts the same. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pelton::cost_model {

inline constexpr int kDraftRows = 64;

// Those of every sequence, while that are not too many: each takes a row of logits, and where many
// sequences run few guesses pay. `tokens_max`: behind one sequence's token.
inline int draft_rows_max(int sequences_max, int tokens_max, int batch_tokens_max) {
  const int64_t wanted = int64_t{sequences_max} * tokens_max;
  const int64_t most = std::max({kDraftRows, 2 * sequences_max, tokens_max});
  return static_cast<int>(std::min<int64_t>({wanted, most, batch_tokens_max - 1}));
}

}  // namespace pelton::cost_model
