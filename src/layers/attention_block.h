// One attention block: x += W_o attention(rotate(W_q n), rotate(W_k n), W_v n) + b_o, n =
// rms_norm(x); biases, sinks, a norm over each head of queries and keys, and one over what is
// added, where the family has them. Immutable after loading; working memory is the caller's.
// Executor thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "layers/attention.h"
#include "layers/weights.h"

namespace pelton::layers {

class AttentionBlock final : public Attention {
 public:
  // part: null, or what of it is this rank's, which outlives the block.
  static Result<AttentionBlock> load(const checkpoint::Checkpoint& checkpoint, int layer,
                                     const RankPart* part);

  // workspace.qkv: queries, keys and values row by row, or one after the other.
  void forward(kernels::Kernels& kernels, float* x, int tokens, const float* cos_sin,
               const kernels::KvLayer& cache, const std::vector<kernels::SequenceRows>& sequences,
               const LayerAdapters& adapters, AttentionWorkspace& workspace) const override;
  int64_t weight_bytes() const override;
  int64_t owned_bytes() const override { return vectors_.bytes(); }

 private:
  Result<void> keep_part(const RankPart& part, const std::string& name);
  // x += residual_scale (W_o mixed + b_o), without a norm behind it.
  void add_output(kernels::Kernels& kernels, float* x, const float* mixed, int tokens,
                  const LayerAdapters& adapters, AttentionWorkspace& workspace) const;
  // What the heads have mixed, (tokens, heads * head_size); of all ranks.
  const float* mixed_heads(kernels::Kernels& kernels, int tokens, const float* q, int64_t q_stride,
                           const kernels::KvLayer& cache,
                           const std::vector<kernels::SequenceRows>& sequences,
                           AttentionWorkspace& workspace) const;

  FloatVectors vectors_;  // what the pointers below lead to
  const float* norm_ = nullptr;
  kernels::Linear qkv_;  // all three, row by row; or, where the checkpoint has them apart:
  kernels::Linear q_;
  kernels::Linear k_;
  kernels::Linear v_;
  kernels::Linear o_;
  const float* q_norm_ = nullptr;  // (head_size), or null: no QK norm
  const float* k_norm_ = nullptr;
  const float* post_norm_ = nullptr;  // (hidden), or null: none
  kernels::AttentionShape shape_;
  kernels::RotaryShape rotary_;  // of queries; keys have fewer heads
  const RankPart* part_ = nullptr;
  int hidden_ = 0;
  float epsilon_ = 0;
  float residual_scale_ = 1.0f;
};

}  // namespace pelton::layers
