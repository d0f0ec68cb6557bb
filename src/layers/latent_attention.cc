#include "layers/latent_attention.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace pelton::layers {
namespace {

using Output = kernels::Kernels::Output;

// Of the two norms within, whatever rms_norm_eps says.
constexpr float kInnerEpsilon = 1e-6f;

// A tensor (heads, rows, cols).
Result<kernels::HeadMatrices> load_each(const checkpoint::Checkpoint& checkpoint,
                                        const std::string& name, int heads, int rows, int cols) {
  TRY_ASSIGN(tensor::TensorView view,
             checkpoint.tensor(name, std::array<int64_t, 3>{heads, rows, cols}));
  view.shape = {int64_t{heads} * rows, cols};
  kernels::HeadMatrices matrices{.heads = heads, .rows = rows, .stride = rows};
  TRY_ASSIGN(matrices.weight, matrix_of(view, name));
  return matrices;
}

}  // namespace

Result<LatentAttention> LatentAttention::load(const checkpoint::Checkpoint& checkpoint, int layer) {
  const families::ModelConfig& config = checkpoint.config();
  const families::LatentConfig& latent = config.latent;
  const int hidden = config.hidden_size;
  const int heads = config.head_count;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";

  if (config.residual_scale != 1.0 || config.post_norms) {
    return Error{ErrorCode::kUnsupported,
                 "latent attention with a scale or a norm behind the block are not computed yet"};
  }
  LatentAttention block;
  block.hidden_ = hidden;
  block.nope_size_ = latent.nope_size;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  block.shape_ = {.heads = heads,
                  .rank = latent.kv_rank,
                  .rope_size = latent.rope_size,
                  .scale = static_cast<float>(config.attention_scale)};
  FloatVectors& keep = block.vectors_;
  const auto linear = [&](const char* name, int rows, int cols) {
    return load_linear(checkpoint, attention + name, rows, cols, Bias::kNone, keep);
  };
  TRY_ASSIGN(block.norm_, load_norm(checkpoint, prefix + "input_layernorm.weight", hidden, keep));
  if (latent.q_rank > 0) {
    TRY_ASSIGN(block.q_a_, linear("q_a_proj", latent.q_rank, hidden));
    TRY_ASSIGN(block.q_a_norm_,
               load_vector(checkpoint, attention + "q_a_layernorm.weight", latent.q_rank, keep));
    TRY_ASSIGN(block.q_, linear("q_b_proj", config.q_size(), latent.q_rank));
  } else {
    TRY_ASSIGN(block.q_, linear("q_proj", config.q_size(), hidden));
  }
  TRY_ASSIGN(block.kv_a_, linear("kv_a_proj_with_mqa", block.shape_.width(), hidden));
  TRY_ASSIGN(block.kv_a_norm_,
             load_vector(checkpoint, attention + "kv_a_layernorm.weight", latent.kv_rank, keep));
  TRY(block.load_heads(checkpoint, attention));
  TRY_ASSIGN(block.o_, linear("o_proj", hidden, heads * latent.value_size));
  return block;
}

Result<void> LatentAttention::load_heads(const checkpoint::Checkpoint& checkpoint,
                                         const std::string& attention) {
  const families::LatentConfig& latent = checkpoint.config().latent;
  const int heads = shape_.heads;
  const int rank = latent.kv_rank;
  keys_transposed_ = latent.keys_transposed;
  if (keys_transposed_) {
    TRY_ASSIGN(key_,
               load_each(checkpoint, attention + "k_b_proj.weight", heads, rank, latent.nope_size));
    TRY_ASSIGN(value_, load_each(checkpoint, attention + "v_b_proj.weight", heads,
                                 latent.value_size, rank));
    return {};
  }
  const int of_head = latent.nope_size + latent.value_size;
  TRY_ASSIGN(const kernels::Matrix kv_b, load_weight(checkpoint, attention + "kv_b_proj.weight",
                                                     heads * of_head, rank, vectors_));
  key_ = {.weight = kv_b, .heads = heads, .rows = latent.nope_size, .stride = of_head};
  value_ = {.weight = kv_b,
            .heads = heads,
            .first = latent.nope_size,
            .rows = latent.value_size,
            .stride = of_head};
  return {};
}

void LatentAttention::forward(kernels::Kernels& kernels, float* x, int tokens, const float* cos_sin,
                              const kernels::KvLayer& cache,
                              const std::vector<kernels::SequenceRows>& sequences,
                              const LayerAdapters& /*adapters: lora/ has none on such*/,
                              AttentionWorkspace& workspace) const {
  const int sequence_count = static_cast<int>(sequences.size());
  const int64_t q_width = std::max(q_.weight.rows, value_.heads * value_.rows);
  float* const compressed = workspace.qkv.data();
  float* const queries = compressed + int64_t{tokens} * q_a_.weight.rows;
  float* const rows = queries + tokens * q_width;
  kernels.rms_norm(workspace.normed.data(), x, norm_, tokens, hidden_, epsilon_);
  make_queries(kernels, compressed, queries, tokens, workspace);
  kernels.rotate(queries + nope_size_, q_.weight.rows, cos_sin, tokens,
                 rotary(shape_.heads, nope_size_ + shape_.rope_size));
  make_rows(kernels, rows, tokens, cos_sin, workspace);
  kernels.store_latent(cache, rows, shape_.width(), sequences.data(), sequence_count);
  absorb(kernels, queries, tokens, workspace);
  kernels.latent_attention(workspace.mixed.data(), workspace.absorbed.data(), cache, shape_,
                           sequences.data(), sequence_count);
  float* const values = queries;  // which are no longer needed
  const int64_t rank = shape_.rank;
  const int64_t value_size = value_.rows;
  kernels.linear_heads(values, {value_.heads * value_size, value_size}, workspace.mixed.data(),
                       {shape_.heads * rank, rank}, value_, tokens);
  kernels.linear(x, values, o_, tokens, Output::kAccumulate);
}

void LatentAttention::make_queries(kernels::Kernels& kernels, float* compressed, float* queries,
                                   int tokens, AttentionWorkspace& workspace) const {
  if (q_a_norm_ == nullptr) {
    return kernels.linear(queries, workspace.normed.data(), q_, tokens, Output::kOverwrite);
  }
  kernels.linear(compressed, workspace.normed.data(), q_a_, tokens, Output::kOverwrite);
  kernels.rms_norm(compressed, compressed, q_a_norm_, tokens, q_a_.weight.rows, kInnerEpsilon);
  kernels.linear(queries, compressed, q_, tokens, Output::kOverwrite);
}

void LatentAttention::make_rows(kernels::Kernels& kernels, float* rows, int tokens,
                                const float* cos_sin, AttentionWorkspace& workspace) const {
  kernels.linear(rows, workspace.normed.data(), kv_a_, tokens, Output::kOverwrite);
  kernels.rms_norm_heads(rows, shape_.width(), kv_a_norm_, tokens, 1, shape_.rank, kInnerEpsilon);
  kernels.rotate(rows + shape_.rank, shape_.width(), cos_sin, tokens, rotary(1, shape_.rope_size));
}

void LatentAttention::absorb(kernels::Kernels& kernels, const float* queries, int tokens,
                             AttentionWorkspace& workspace) const {
  const int head_size = nope_size_ + shape_.rope_size;
  const int width = shape_.width();
  float* const to = workspace.absorbed.data();
  const kernels::HeadStrides out{int64_t{shape_.heads} * width, width};
  const kernels::HeadStrides in{q_.weight.rows, head_size};
  if (keys_transposed_) {
    kernels.linear_heads(to, out, queries, in, key_, tokens);
  } else {
    kernels.linear_heads_transposed(to, out, queries, in, key_, tokens);
  }
  for (int64_t i = 0; i < int64_t{tokens} * shape_.heads; ++i) {
    std::copy_n(queries + i * head_size + nope_size_, shape_.rope_size,
                to + i * width + shape_.rank);
  }
}

kernels::RotaryShape LatentAttention::rotary(int heads, int stride) const {
  return {.heads = heads,
          .head_stride = stride,
          .size = shape_.rope_size,
          .pairs = kernels::RotaryShape::Pairs::kNeighbours};
}

int64_t LatentAttention::weight_bytes() const {
  const int64_t values = keys_transposed_ ? matrix_bytes(value_.weight) : 0;  // else the keys', too
  return matrix_bytes(q_a_.weight) + matrix_bytes(q_.weight) + matrix_bytes(kv_a_.weight) +
         matrix_bytes(key_.weight) + values + matrix_bytes(o_.weight) + vectors_.bytes();
}

}  // namespace pelton::layers
