// One mixture-of-experts block: x += sum over the router's top k of weight * expert(n), and what
// every token goes through, if the family has that; n = rms_norm(x). Immutable after loading;
// working memory is the caller's. Executor thread.
#pragma once

#include <optional>

#include "layers/feed_forward.h"
#include "layers/gated_mlp.h"
#include "layers/weights.h"

namespace pelton::layers {

class ExpertBlock final : public FeedForward {
 public:
  // part: null, or what of it is this rank's, which outlives the block.
  static Result<ExpertBlock> load(const checkpoint::Checkpoint& checkpoint, int layer,
                                  const RankPart* part);

  void forward(kernels::Kernels& kernels, float* x, int tokens, const LayerAdapters& adapters,
               FeedForwardWorkspace& workspace) const override;

  // What a step of so many tokens reads in the mean, were one expert chosen as often as another:
  // the router, and experts * (1 - (1 - chosen / experts)^tokens) experts.
  double weight_bytes(int tokens) const override;
  int64_t owned_bytes() const override {
    return vectors_.bytes() + (shared_ ? shared_->owned_bytes() : 0);
  }

 private:
  FloatVectors vectors_;  // what the pointers below lead to
  const float* norm_ = nullptr;
  kernels::Linear router_;
  kernels::RouterShape router_shape_;
  kernels::ExpertWeights experts_;
  kernels::MoeShape shape_;
  std::optional<GatedMlp> shared_;
  const RankPart* part_ = nullptr;
  const DealtExperts* dealt_ = nullptr;  // the part's, where experts are not cut
  int hidden_ = 0;
  float epsilon_ = 0;
};

}  // namespace pelton::layers
