// Edits of logits that look at the order of a sequence's tokens, and not only at their counts: the
// DRY penalty and words of several tokens that must not be said. Pure functions.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "request/generation_request.h"

namespace pelton::sampling {

// "Don't repeat yourself" (p-e-w 2024): how much is taken from each token's logit that would go on
// repeating. Where the last L tokens stand earlier too, and x came behind them there, x costs
// multiplier * base^(L - allowed_length), L being the longest such match and at least
// allowed_length. No match reaches over a breaker, and a breaker costs nothing. Of `tokens`, the
// last `last_n` count (negative: all). Example: a b c a b, allowed_length 2: c costs multiplier.
// Sorted by token, each once. Time and memory: linear.
std::vector<std::pair<TokenId, float>> dry_penalties(std::span<const TokenId> tokens,
                                                     const request::DryPenalty& dry);

// The tokens that would end one of `words` behind `output`.
std::vector<TokenId> ends_of_bad_words(std::span<const TokenId> output,
                                       std::span<const std::vector<TokenId>> words);

}  // namespace pelton::sampling
