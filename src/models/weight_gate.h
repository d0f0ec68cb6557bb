// How much of a model's precision its packed weights lose, and whether that is little enough: the
// same tokens through the weights as shipped, with float32 activations, and through the packed
// ones. One thread, whose pool the kernels use.
#pragma once

#include <span>
#include <string>
#include <vector>

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

// Empty if the loss is within the limits; otherwise what is not, with both numbers.
std::string excess(const WeightLoss& loss, const WeightLossLimits& limits);

class WeightGate {
 public:
  // Computes the tokens' logits, twice. They are one sequence of 2 or more; `kernels` outlive this.
  // Errors: what loading `shipped` has; kBadCheckpoint if it computes NaN or infinity.
  static Result<WeightGate> make(const checkpoint::Checkpoint& shipped, kernels::Kernels& kernels,
                                 std::span<const TokenId> tokens);

  Result<WeightLoss> measure(const checkpoint::Checkpoint& packed) const;

  // What the shipped weights lose in bf16 (kernels/bf16_kernels.h), the arithmetic in which models
  // are trained and published; over all logits, or over those that matter.
  const WeightLoss& in_bf16(bool coarse_head) const { return coarse_head ? coarse_bf16_ : bf16_; }

  // The limits above, or where the model itself loses more than that in bf16, so much: some models
  // (deep ones, with experts about to be chosen) amplify any rounding, and no packing can be
  // asked to stay closer to float32 than the model as published does.
  WeightLossLimits limits(bool coarse_head) const;

 private:
  WeightGate(kernels::Kernels& kernels, std::span<const TokenId> tokens, int64_t vocab)
      : kernels_(&kernels), tokens_(tokens.begin(), tokens.end()), vocab_(vocab) {}

  WeightLoss compare(std::span<const float> got, bool coarse_head) const;

  kernels::Kernels* kernels_;
  std::vector<TokenId> tokens_;
  int64_t vocab_;
  std::vector<float> exact_;  // (tokens, vocab)
  WeightLoss bf16_;
  WeightLoss coarse_bf16_;
};

}  // namespace pelton::models
