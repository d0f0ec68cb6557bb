// Runs one text through a model with two kinds of kernels and compares the residual stream after
// every block: where arithmetic and weights are sound they differ by rounding only. One thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace pelton::models {

struct BlockDifference {
  std::string name;         // "embedding", "layer 3 attention", "layer 3 experts", "logits"
  double error_median = 0;  // over positions: |fast - reference| / |reference|
  double error_max = 0;
  double rms = 0;  // of the reference's values; not finite if any of either is not
};

struct SelfCheck {
  std::vector<BlockDifference> blocks;  // in order
  size_t worst = 0;                     // index: the largest median
  double nats_per_token = 0;            // reference: mean -log p(next token)
  double agreement = 0;                 // share of positions with the same most likely token
};

// The tokens are one sequence of 2 or more. Both models keep keys and values as float32, so that
// only arithmetic differs. progress(blocks done, blocks in all).
Result<SelfCheck> self_check(const checkpoint::Checkpoint& checkpoint, kernels::Kernels& reference,
                             kernels::Kernels& fast, std::span<const TokenId> tokens,
                             base::FunctionRef<void(int64_t, int64_t)> progress);

}  // namespace pelton::models
