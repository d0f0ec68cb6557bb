// A layer of an encoder, post-norm: x = LN(x + W_o attention(x)), x = LN(x + W_down act(W_up x)),
// with biases everywhere, and every token of a text seeing every other (BERT, arXiv 1810.04805).
// Immutable after loading; working memory is the caller's. Executor thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::layers {

// Weight and bias of a LayerNorm, float (hidden).
struct LayerNorm {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
Result<LayerNorm> load_layer_norm(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                                  int size, FloatVectors& keep);

kernels::ActivationKind activation_kind(families::Activation activation);

// Room for one step of at most `tokens` rows; shared by all layers. Keys and values of the layer at
// hand lie in blocks as a cache's do, but are gone with the layer: a few texts at a time, so that
// short ones, which fill their last blocks badly, take no more.
struct EncoderWorkspace {
  EncoderWorkspace(const families::ModelConfig& config, int tokens);

  static constexpr int kBlockTokens = 16;
  // Beside whole blocks: of so many texts that end in the middle of one.
  static constexpr int kPartialBlocks = 64;
  static int block_count(int tokens) {
    return (tokens + kBlockTokens - 1) / kBlockTokens + kPartialBlocks;
  }

  std::vector<float> qkv;          // (3, tokens, hidden)
  std::vector<float> mixed;        // (tokens, hidden)
  std::vector<float> inner;        // (tokens, intermediate)
  std::vector<float> kv;           // the blocks
  std::vector<int32_t> block_ids;  // 0, 1, 2, ...

  int64_t bytes() const;
};

class EncoderLayer {
 public:
  static Result<EncoderLayer> load(const checkpoint::Checkpoint& checkpoint, int layer);

  // x: float (tokens, hidden); lengths: of the texts, whose rows lie one after the other.
  void forward(kernels::Kernels& kernels, float* x, int tokens, const std::vector<int>& lengths,
               EncoderWorkspace& workspace) const;
  // The first half, ahead of which x is what the layer gets and behind which it is normed.
  void attend(kernels::Kernels& kernels, float* x, int tokens, const std::vector<int>& lengths,
              EncoderWorkspace& workspace) const;
  void feed_forward(kernels::Kernels& kernels, float* x, int tokens,
                    EncoderWorkspace& workspace) const;

  int64_t weight_bytes() const;
  int64_t owned_bytes() const { return vectors_.bytes(); }

 private:
  FloatVectors vectors_;  // what the pointers below lead to
  kernels::Linear q_;
  kernels::Linear k_;
  kernels::Linear v_;
  kernels::Linear o_;
  kernels::Linear up_;
  kernels::Linear down_;
  LayerNorm attention_norm_;
  LayerNorm output_norm_;
  kernels::AttentionShape shape_;
  kernels::ActivationKind activation_ = kernels::ActivationKind::kGelu;
  float epsilon_ = 0;
};

}  // namespace pelton::layers
