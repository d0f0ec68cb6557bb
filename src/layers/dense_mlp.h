// A dense MLP: x += W_down glu(W_gate n, W_up n), n = rms_norm(x). Immutable after loading; working
// memory is the caller's. Executor thread.
#pragma once

#include "layers/feed_forward.h"
#include "layers/weights.h"

namespace pelton::layers {

class DenseMlp final : public FeedForward {
 public:
  static Result<DenseMlp> load(const checkpoint::Checkpoint& checkpoint, int layer);

  void forward(kernels::Kernels& kernels, float* x, int tokens,
               FeedForwardWorkspace& workspace) const override;
  double weight_bytes(int tokens) const override;
  int64_t owned_bytes() const override { return vectors_.bytes(); }

 private:
  FloatVectors vectors_;  // what `norm_` leads to
  const float* norm_ = nullptr;
  kernels::Linear gate_;  // (inner, hidden)
  kernels::Linear up_;    // (inner, hidden)
  kernels::Linear down_;  // (hidden, inner)
  kernels::GluShape glu_;
  int hidden_ = 0;
  float epsilon_ = 0;
};

}  // namespace pelton::layers
