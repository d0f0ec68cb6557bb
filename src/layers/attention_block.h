// One attention block: x += W_o attention(rotate(W_q n), rotate(W_k n), W_v n) + b_o, n =
// rms_norm(x); biases, sinks and a norm over each head of queries and keys where the family has
// them. Immutable after loading; working memory is the caller's. Executor thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::layers {

// Room for one step of at most `tokens` rows; shared by all layers.
struct AttentionWorkspace {
  AttentionWorkspace(const families::ModelConfig& config, int tokens);

  std::vector<float> normed;  // (tokens, hidden)
  std::vector<float> qkv;     // (tokens, heads * head_size) and twice (tokens, kv_heads *
                              // head_size), row by row or one after the other
  std::vector<float> mixed;   // (tokens, heads * head_size)

  int64_t bytes() const;
};

class AttentionBlock {
 public:
  static Result<AttentionBlock> load(const checkpoint::Checkpoint& checkpoint, int layer);

  // x: float (tokens, hidden). cos_sin: (tokens, head_size), see Rotary. sequences: with the block
  // tables of this layer's group; their rows lie one after the other and cover all tokens.
  void forward(kernels::Kernels& kernels, float* x, int tokens, const float* cos_sin,
               const kernels::KvLayer& cache, const std::vector<kernels::SequenceRows>& sequences,
               AttentionWorkspace& workspace) const;

  // What a step reads.
  int64_t weight_bytes() const;
  int64_t owned_bytes() const { return vectors_.bytes(); }  // beside what is mapped

 private:
  FloatVectors vectors_;  // what the pointers below lead to
  const float* norm_ = nullptr;
  kernels::Linear qkv_;  // all three, row by row; or, where the checkpoint has them apart:
  kernels::Linear q_;
  kernels::Linear k_;
  kernels::Linear v_;
  kernels::Linear o_;
  const float* q_norm_ = nullptr;  // (head_size), or null: no QK norm
  const float* k_norm_ = nullptr;
  kernels::AttentionShape shape_;
  int hidden_ = 0;
  float epsilon_ = 0;
};

}  // namespace pelton::layers
