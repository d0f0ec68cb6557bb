#include "layers/encoder_layer.h"

#include <numeric>
#include <string>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::layers {
namespace {

// Exact: nothing of them outlives the layer, so they take no more room than activations do.
constexpr tensor::DType kKvType = tensor::DType::kF32;

kernels::KvLayer blocks_of(std::vector<float>& memory, const kernels::AttentionShape& shape) {
  return {.data = memory.data(),
          .dtype = kKvType,
          .block_tokens = EncoderWorkspace::kBlockTokens,
          .kv_heads = shape.kv_heads,
          .head_size = shape.head_size};
}

}  // namespace

Result<LayerNorm> load_layer_norm(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                                  int size, FloatVectors& keep) {
  LayerNorm norm;
  TRY_ASSIGN(norm.weight, load_vector(checkpoint, name + ".weight", size, keep));
  TRY_ASSIGN(norm.bias, load_vector(checkpoint, name + ".bias", size, keep));
  return norm;
}

kernels::ActivationKind activation_kind(families::Activation activation) {
  switch (activation) {
    case families::Activation::kGelu:
      return kernels::ActivationKind::kGelu;
    case families::Activation::kGeluTanh:
      return kernels::ActivationKind::kGeluTanh;
    case families::Activation::kRelu:
      break;
  }
  return kernels::ActivationKind::kRelu;
}

EncoderWorkspace::EncoderWorkspace(const families::ModelConfig& config, int tokens) {
  const auto rows = static_cast<size_t>(tokens);
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const auto blocks = static_cast<size_t>(block_count(tokens));
  qkv.resize(3 * rows * hidden);
  mixed.resize(rows * hidden);
  inner.resize(rows * static_cast<size_t>(config.intermediate_size));
  kv.resize(blocks * 2 * kBlockTokens * hidden);
  block_ids.resize(blocks);
  std::iota(block_ids.begin(), block_ids.end(), 0);
}

int64_t EncoderWorkspace::bytes() const {
  const size_t floats = qkv.capacity() + mixed.capacity() + inner.capacity() + kv.capacity();
  return static_cast<int64_t>(floats * sizeof(float) + block_ids.capacity() * sizeof(int32_t));
}

Result<EncoderLayer> EncoderLayer::load(const checkpoint::Checkpoint& checkpoint, int layer) {
  const families::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int hidden = config.hidden_size;
  const int inner = config.intermediate_size;

  EncoderLayer made;
  const auto linear = [&](const char* name, int rows, int cols) {
    return load_linear(checkpoint, prefix + name, rows, cols, Bias::kAdded, made.vectors_);
  };
  TRY_ASSIGN(made.q_, linear("self_attn.q_proj", hidden, hidden));
  TRY_ASSIGN(made.k_, linear("self_attn.k_proj", hidden, hidden));
  TRY_ASSIGN(made.v_, linear("self_attn.v_proj", hidden, hidden));
  TRY_ASSIGN(made.o_, linear("self_attn.o_proj", hidden, hidden));
  TRY_ASSIGN(made.up_, linear("mlp.up_proj", inner, hidden));
  TRY_ASSIGN(made.down_, linear("mlp.down_proj", hidden, inner));
  TRY_ASSIGN(made.attention_norm_, load_layer_norm(checkpoint, prefix + "post_attention_layernorm",
                                                   hidden, made.vectors_));
  TRY_ASSIGN(made.output_norm_, load_layer_norm(checkpoint, prefix + "post_feedforward_layernorm",
                                                hidden, made.vectors_));
  made.shape_ = {.heads = config.head_count,
                 .kv_heads = config.kv_head_count,
                 .head_size = config.head_size,
                 .scale = static_cast<float>(config.attention_scale)};
  made.activation_ = activation_kind(config.encoder.activation);
  made.epsilon_ = static_cast<float>(config.encoder.layer_norm_epsilon);
  return made;
}

void EncoderLayer::forward(kernels::Kernels& kernels, float* x, int tokens,
                           const std::vector<int>& lengths, EncoderWorkspace& workspace) const {
  attend(kernels, x, tokens, lengths, workspace);
  feed_forward(kernels, x, tokens, workspace);
}

void EncoderLayer::attend(kernels::Kernels& kernels, float* x, int tokens,
                          const std::vector<int>& lengths, EncoderWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  constexpr int kBlock = EncoderWorkspace::kBlockTokens;
  const int hidden = q_.weight.cols;
  float* const q = workspace.qkv.data();
  float* const k = q + int64_t{tokens} * hidden;
  float* const v = k + int64_t{tokens} * hidden;
  kernels.linear(q, x, q_, tokens, Output::kOverwrite);
  kernels.linear(k, x, k_, tokens, Output::kOverwrite);
  kernels.linear(v, x, v_, tokens, Output::kOverwrite);

  const kernels::KvLayer blocks = blocks_of(workspace.kv, shape_);
  const size_t block_count = workspace.block_ids.size();
  std::vector<kernels::SequenceRows> together;
  int row = 0;
  for (size_t text = 0; text < lengths.size();) {
    together.clear();
    size_t taken = 0;
    for (; text < lengths.size(); ++text) {
      const size_t wanted = static_cast<size_t>((lengths[text] + kBlock - 1) / kBlock);
      if (taken + wanted > block_count) break;
      together.push_back({.row_begin = row,
                          .row_count = lengths[text],
                          .start = 0,
                          .blocks = workspace.block_ids.data() + taken,
                          .key_count = lengths[text]});
      taken += wanted;
      row += lengths[text];
    }
    CHECK(!together.empty(), "a text is longer than the step");
    const int count = static_cast<int>(together.size());
    kernels.store_kv(blocks, k, v, hidden, together.data(), count);
    kernels.attention(workspace.mixed.data(), q, hidden, blocks, shape_, together.data(), count);
  }
  CHECK(row == tokens);
  kernels.linear(x, workspace.mixed.data(), o_, tokens, Output::kAccumulate);
  kernels.layer_norm(x, x, attention_norm_.weight, attention_norm_.bias, tokens, hidden, epsilon_);
}

void EncoderLayer::feed_forward(kernels::Kernels& kernels, float* x, int tokens,
                                EncoderWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  float* const inner = workspace.inner.data();
  kernels.linear(inner, x, up_, tokens, Output::kOverwrite);
  kernels.activate(inner, int64_t{tokens} * up_.weight.rows, activation_);
  kernels.linear(x, inner, down_, tokens, Output::kAccumulate);
  kernels.layer_norm(x, x, output_norm_.weight, output_norm_.bias, tokens, up_.weight.cols,
                     epsilon_);
}

int64_t EncoderLayer::weight_bytes() const {
  return matrix_bytes(q_.weight) + matrix_bytes(k_.weight) + matrix_bytes(v_.weight) +
         matrix_bytes(o_.weight) + matrix_bytes(up_.weight) + matrix_bytes(down_.weight) +
         vectors_.bytes();
}

}  // namespace pelton::layers
