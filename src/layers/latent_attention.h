// Multi-head latent attention (arXiv 2405.04434) in its absorbed form. The cache holds one row of
// each token for all heads: its latent c, normed, and a key part p, rotated. With W_k and W_v of a
// head, the rows of kv_b_proj:
//
//   score = (q_nope . W_k c + q_rope . p) scale = (W_k^T q_nope . c + q_rope . p) scale
//   out   = sum of weights * W_v c              = W_v (sum of weights * c)
//
// so that neither keys nor values of a head are ever made. The same form serves prefill and decode:
// a row's bits must not depend on what it is computed with (docs/decisions/0055).
// Immutable after loading; working memory is the caller's. Executor thread.
#pragma once

#include <vector>

#include "layers/attention.h"
#include "layers/weights.h"

namespace pelton::layers {

class LatentAttention final : public Attention {
 public:
  static Result<LatentAttention> load(const checkpoint::Checkpoint& checkpoint, int layer);

  // workspace.qkv: compressed queries (tokens, q_rank), then queries (tokens, heads, nope + rope)
  // or what the heads give (tokens, heads, value_size), then rows of the cache (tokens, rank +
  // rope_size).
  void forward(kernels::Kernels& kernels, float* x, int tokens, const float* cos_sin,
               const kernels::KvLayer& cache, const std::vector<kernels::SequenceRows>& sequences,
               const LayerAdapters& adapters, AttentionWorkspace& workspace) const override;
  int64_t weight_bytes() const override;
  int64_t owned_bytes() const override { return vectors_.bytes(); }

 private:
  // W_k and W_v, from one matrix or two.
  Result<void> load_heads(const checkpoint::Checkpoint& checkpoint, const std::string& attention);
  // From workspace.normed.
  void make_queries(kernels::Kernels& kernels, float* compressed, float* queries, int tokens,
                    AttentionWorkspace& workspace) const;
  void make_rows(kernels::Kernels& kernels, float* rows, int tokens, const float* cos_sin,
                 AttentionWorkspace& workspace) const;
  // workspace.absorbed <- W_k^T q_nope, q_rope
  void absorb(kernels::Kernels& kernels, const float* queries, int tokens,
              AttentionWorkspace& workspace) const;
  kernels::RotaryShape rotary(int heads, int stride) const;

  FloatVectors vectors_;  // what the norms lead to
  const float* norm_ = nullptr;
  kernels::Linear q_a_;  // (q_rank, hidden); no rows: queries are not compressed
  const float* q_a_norm_ = nullptr;
  kernels::Linear q_;     // (heads * (nope + rope), q_rank or hidden)
  kernels::Linear kv_a_;  // (rank + rope, hidden)
  const float* kv_a_norm_ = nullptr;
  kernels::HeadMatrices key_;  // W_k: (nope, rank) of each head, or (rank, nope)
  bool keys_transposed_ = false;
  kernels::HeadMatrices value_;  // W_v: (value_size, rank)
  kernels::Linear o_;            // (hidden, heads * value_size)
  kernels::LatentShape shape_;
  int nope_size_ = 0;
  int hidden_ = 0;
  float epsilon_ = 0;
};

}  // namespace pelton::layers
