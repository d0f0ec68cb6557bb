// How much of a model's precision its packed weights lose, and whether that is little enough: the
// same tokens through the weights as shipped, with float32 activations, and through the packed
// ones, both with the cache that the kernels prefer. One thread, whose pool the kernels use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace pelton::models {

// Which logits are compared: all, or those that matter (layers/output_head.h) where the others are
// meant to be coarse.
enum class ComparedLogits { kAll, kThatMatter };

struct WeightLoss {
  ComparedLogits compared = ComparedLogits::kAll;
  // Over positions: |packed - shipped| / |shipped| of the compared logits.
  double error_mean = 0;
  double error_max = 0;
  double divergence = 0;  // mean KL(shipped || packed), in nats, over the whole vocabulary
  double agreement = 0;   // share of positions with the same most likely token
  double lost_gap = 0;    // of the logits of the two best, where the best one changed: the most

  bool is_finite() const;
};

// What quantised weights may lose at least (testdata/golden/README.md: what is asked of fast
// kernels).
struct WeightLossLimits {
  double error_mean = 1.4e-2;
  double error_max = 2.5e-2;
  double divergence = 6e-4;
  double agreement = 0.97;
  double lost_gap = 0.2;
};

// What they may never lose, however a model behaves.
inline constexpr WeightLossLimits kWidestLimits = {
    .error_mean = 0.1, .error_max = 0.5, .divergence = 0.1, .agreement = 0.8, .lost_gap = 2.0};

// Golden's; a model with an approximate lm_head may part a little further over the whole
// vocabulary.
WeightLossLimits golden_limits(ComparedLogits compared);

// For a model that holds golden's limits in no format: those, or where it loses more in bf16
// (`in_bf16`), so much, up to the widest. Some models (deep ones, with experts that are nearly
// equally good) amplify any rounding, and no packing can be asked to stay closer to float32 than
// the published model does.
WeightLossLimits limits_beside(const WeightLoss& in_bf16);

// Empty if the loss is within the limits; otherwise what is not, with both numbers.
std::string excess(const WeightLoss& loss, const WeightLossLimits& limits);

// A text's logits with the weights as shipped, and what they lose in bf16
// (kernels/bf16_kernels.h), the arithmetic in which models are trained and published.
class AccuracyGate {
 public:
  // Computes the tokens' logits twice, and asks before each whether to go on. They are one sequence
  // of 2 or more; `kernels` outlive this. Errors: what loading `shipped` has; kBadCheckpoint if it
  // computes NaN or infinity; kCancelled.
  static Result<AccuracyGate> make(const checkpoint::Checkpoint& shipped, kernels::Kernels& kernels,
                                   std::span<const TokenId> tokens,
                                   base::FunctionRef<bool(int64_t done, int64_t total)> go_on);

  Result<WeightLoss> measure(const checkpoint::Checkpoint& packed) const;

  const WeightLoss& in_bf16(ComparedLogits compared) const {
    return compared == ComparedLogits::kAll ? all_in_bf16_ : that_matter_in_bf16_;
  }

 private:
  AccuracyGate(kernels::Kernels& kernels, std::span<const TokenId> tokens, int64_t vocab)
      : kernels_(&kernels), tokens_(tokens.begin(), tokens.end()), vocab_(vocab) {}

  WeightLoss compare(std::span<const float> got, ComparedLogits compared) const;

  kernels::Kernels* kernels_;
  std::vector<TokenId> tokens_;
  int64_t vocab_;
  std::vector<float> exact_;  // (tokens, vocab)
  WeightLoss all_in_bf16_;
  WeightLoss that_matter_in_bf16_;
};

}  // namespace pelton::models
