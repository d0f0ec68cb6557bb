// The cuts that look at a whole distribution: locally typical sampling, top-n-sigma, XTC, and the
// temperature that follows the entropy. Each is written as its paper or its author defines it, on
// ranked tokens whose weights are whole numbers, so that the same row is cut alike under batching
// and preemption. Pure functions; the vectors are the caller's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "kernels/logit_rows.h"
#include "request/generation_request.h"

namespace pelton::sampling {

// A token with its share of the distribution: weight / (sum of all weights).
struct Weighted {
  TokenId token = 0;
  float logit = 0.0f;
  kernels::Mass weight = 0;
};

// All below: `ranked` is in order of rank (the higher logit first, of equals the lower id), no
// weight is 0, and at least one token is left.

// Locally typical sampling (Meister, Pimentel, Wiher, Cotterell 2022): of the tokens in order of
// |-ln p - H|, how far their surprise is from the distribution's entropy H, the shortest front that
// has at least `share` of the mass. Example: p = .5 .25 .125 .125 has H = 1.21; the distances are
// .52 .17 .87 .87, so a share of .2 leaves the second token alone.
void keep_typical(std::vector<Weighted>& ranked, double share);

// The shortest front by rank that has at least `share` of the mass.
void keep_share(std::vector<Weighted>& ranked, float share);

// Those that weigh at least `share` of the first one.
void keep_above(std::vector<Weighted>& ranked, float share);

// Mirostat's cut: those of a surprise (-log2 of their share) of at most `bits`; the first one
// stays. Example: p = .5 .25 .125 .125 and 2 bits leave two tokens.
void keep_unsurprising(std::vector<Weighted>& ranked, double bits);

// -log2 of the share that `token`, one of `tokens` in any order, has of them.
float surprise_of(std::span<const Weighted> tokens, TokenId token);

// "Exclude top choices" (p-e-w 2024): of two or more tokens whose share is at least `threshold`,
// all but the last one go.
void exclude_top_choices(std::vector<Weighted>& ranked, float threshold);

// Top-n-sigma (Tang et al. 2024): the least logit that stays, `n` standard deviations below the
// highest one. Masked logits (infinite, or the lowest number there is) do not
// count.
float sigma_floor(std::span<const float> logits, float highest, float n);

// Dynamic temperature, from `temperature` less `range` (at least 0) to `temperature` and `range`,
// by the entropy of `ranked` as a share of ln(`count`), the most that so many tokens can have,
// raised to `exponent`. `ranked` is weighed at temperature 1.
double dynamic_temperature(std::span<const Weighted> ranked, size_t count,
                           const request::SamplingParams& params);

}  // namespace pelton::sampling
