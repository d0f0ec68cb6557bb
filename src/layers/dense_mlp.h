// A dense MLP: x += mlp(n), n = rms_norm(x), where the family has one with a second norm over what
// is added. Immutable after loading; working memory is the caller's. Executor thread.
#pragma once

#include "layers/feed_forward.h"
#include "layers/gated_mlp.h"
#include "layers/weights.h"

namespace pelton::layers {

class DenseMlp final : public FeedForward {
 public:
  // part: null, or what of it is this rank's, which outlives the block.
  static Result<DenseMlp> load(const checkpoint::Checkpoint& checkpoint, int layer,
                               const RankPart* part);

  void forward(kernels::Kernels& kernels, float* x, int tokens, const LayerAdapters& adapters,
               FeedForwardWorkspace& workspace) const override;
  double weight_bytes(int tokens) const override;
  int64_t owned_bytes() const override { return vectors_.bytes() + mlp_.owned_bytes(); }

 private:
  FloatVectors vectors_;  // what the norms lead to
  const float* norm_ = nullptr;
  const float* post_norm_ = nullptr;  // or null: none
  GatedMlp mlp_;
  bool is_shared_ = false;  // among ranks
  int hidden_ = 0;
  float epsilon_ = 0;
  float residual_scale_ = 1.0f;
};

}  // namespace pelton::layers
