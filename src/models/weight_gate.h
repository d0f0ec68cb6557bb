// How much of a model's precision its packed weights lose: the same tokens through the weights as
// shipped, with float32 activations, and through the packed ones; and whether that is little
// enough. One thread, whose pool the kernels use.
#pragma once

#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace pelton::models {

struct WeightLoss {
  // Over positions: |packed - shipped| / |shipped| of the logits; of those that matter
  // (layers/output_head.h) where the others are meant to be coarse.
  double error_mean = 0;
  double error_max = 0;
  bool coarse_head = false;
  double divergence = 0;  // mean KL(shipped || packed), in nats
  double agreement = 0;   // share of positions with the same most likely token
  double lost_gap = 0;    // of the logits of the two best, where the best one changed: the most
};

// What quantised weights may lose (testdata/golden/README.md: what is asked of fast kernels).
struct WeightLossLimits {
  double error_mean = 1.4e-2;
  double error_max = 2.5e-2;
  double divergence = 6e-4;
  double agreement = 0.97;
  double lost_gap = 0.2;
};

// The same for a model with a coarse head, whose unlikely tokens may be further off.
constexpr WeightLossLimits limits_for(const WeightLoss& loss) {
  WeightLossLimits limits;
  if (loss.coarse_head) limits.divergence = 1e-3;
  return limits;
}

// Empty if the loss is within the limits; otherwise what is not, with both numbers.
std::string excess(const WeightLoss& loss, const WeightLossLimits& limits);

// The tokens are one sequence of 2 or more.
Result<WeightLoss> measure_loss(const checkpoint::Checkpoint& shipped,
                                const checkpoint::Checkpoint& packed, kernels::Kernels& kernels,
                                std::span<const TokenId> tokens);

}  // namespace pelton::models
