// The three products of a gated MLP, W_down glu(W_gate x, W_up x): a dense layer's, or that of the
// experts which every token goes through. Immutable after loading; working memory is the caller's.
// Executor thread.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/feed_forward.h"
#include "layers/weights.h"

namespace pelton::layers {

class GatedMlp {
 public:
  // `prefix`gate_proj.weight (inner, hidden), up_proj likewise, down_proj (hidden, inner); with
  // their biases or without.
  static Result<GatedMlp> load(const checkpoint::Checkpoint& checkpoint, const std::string& prefix,
                               int inner, Bias bias);

  // out, x: float (tokens, hidden); may be the same where `output` overwrites. adapters: on the
  // three products; those of experts that every token goes through have none.
  void forward(kernels::Kernels& kernels, float* out, const float* x, int tokens,
               kernels::Kernels::Output output, const LayerAdapters& adapters,
               FeedForwardWorkspace& workspace) const;

  // Of several ranks: x += scale * all of it, by what is this one's (keep_part). normed: working
  // memory afterwards.
  void add_shared(kernels::Kernels& kernels, float* x, float* normed, int tokens, float scale,
                  FeedForwardWorkspace& workspace) const;
  // `part` outlives it. `name` is for messages.
  Result<void> keep_part(const RankPart& part, const std::string& name);

  int64_t weight_bytes() const;
  int64_t owned_bytes() const { return vectors_.bytes(); }

 private:
  FloatVectors vectors_;  // scales of FP8, biases
  kernels::Linear gate_;
  kernels::Linear up_;
  kernels::Linear down_;
  kernels::GluShape glu_;
  const RankPart* part_ = nullptr;
};

}  // namespace pelton::layers
