#include "layers/attention_block.h"

#include <fmt/format.h>

namespace pelton::layers {
namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

Result<AttentionBlock> AttentionBlock::load(const checkpoint::Checkpoint& checkpoint, int layer,
                                            const RankPart* part) {
  const families::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int q_rows = config.q_size();
  const int kv_rows = config.kv_size();
  const int hidden = config.hidden_size;

  AttentionBlock block;
  block.hidden_ = hidden;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  block.residual_scale_ = static_cast<float>(config.residual_scale);
  TRY_ASSIGN(block.norm_,
             load_norm(checkpoint, prefix + "input_layernorm.weight", hidden, block.vectors_));
  const std::string attention = prefix + "self_attn.";
  const Bias qkv_bias = config.qkv_bias ? Bias::kAdded : Bias::kNone;
  const auto linear = [&](const char* name, int rows) {
    return load_linear(checkpoint, attention + name, rows, hidden, qkv_bias, block.vectors_);
  };
  if (checkpoint.has(attention + "qkv_proj.weight")) {
    TRY_ASSIGN(block.qkv_, linear("qkv_proj", q_rows + 2 * kv_rows));
  } else {
    TRY_ASSIGN(block.q_, linear("q_proj", q_rows));
    TRY_ASSIGN(block.k_, linear("k_proj", kv_rows));
    TRY_ASSIGN(block.v_, linear("v_proj", kv_rows));
  }
  TRY_ASSIGN(block.o_,
             load_linear(checkpoint, attention + "o_proj", hidden, q_rows,
                         config.attn_out_bias ? Bias::kAdded : Bias::kNone, block.vectors_));
  block.shape_ = {.heads = config.head_count,
                  .kv_heads = config.kv_head_count,
                  .head_size = config.head_size,
                  .window = config.is_sliding(layer) ? config.sliding_window : 0,
                  .scale = static_cast<float>(config.attention_scale),
                  .softcap = static_cast<float>(config.attention_softcap)};
  const bool neighbours = config.rope.pairs == families::RopePairs::kNeighbours;
  block.rotary_ = {.heads = config.head_count,
                   .head_stride = config.head_size,
                   .size = config.rotary_size(),
                   .pairs = neighbours ? kernels::RotaryShape::Pairs::kNeighbours
                                       : kernels::RotaryShape::Pairs::kHalves};
  if (config.attention_sinks) {
    TRY_ASSIGN(block.shape_.sinks,
               load_vector(checkpoint, attention + "sinks", config.head_count, block.vectors_));
  }
  if (config.qk_norm) {
    TRY_ASSIGN(block.q_norm_, load_norm(checkpoint, attention + "q_norm.weight", config.head_size,
                                        block.vectors_));
    TRY_ASSIGN(block.k_norm_, load_norm(checkpoint, attention + "k_norm.weight", config.head_size,
                                        block.vectors_));
  }
  if (config.post_norms) {
    TRY_ASSIGN(block.post_norm_, load_norm(checkpoint, prefix + "post_attention_layernorm.weight",
                                           hidden, block.vectors_));
  }
  if (part != nullptr) TRY(block.keep_part(*part, attention));
  return block;
}

// Of queries, keys and values the rows of its heads, also where one matrix holds all three.
Result<void> AttentionBlock::keep_part(const RankPart& part, const std::string& name) {
  const int rank = part.rank();
  const parallel::Share& groups = part.kv_heads();
  const int group_heads = shape_.heads / shape_.kv_heads;
  const int size = shape_.head_size;
  const int kv_first = groups.begin(rank) * size;
  const int kv_count = groups.count(rank) * size;
  const bool fused = qkv_.weight.data != nullptr;
  const int q_rows = fused ? shape_.heads * size : 0;  // ahead of the keys
  const int kv_rows = fused ? shape_.kv_heads * size : 0;
  const kernels::Linear q = fused ? qkv_ : q_;
  const kernels::Linear k = fused ? qkv_ : k_;
  const kernels::Linear v = fused ? qkv_ : v_;
  TRY_ASSIGN(q_, rows_of(q, kv_first * group_heads, kv_count * group_heads, name + "q_proj"));
  TRY_ASSIGN(k_, rows_of(k, q_rows + kv_first, kv_count, name + "k_proj"));
  TRY_ASSIGN(v_, rows_of(v, q_rows + kv_rows + kv_first, kv_count, name + "v_proj"));
  qkv_ = {};
  TRY_ASSIGN(o_,
             rows_of(o_, part.hidden().begin(rank), part.hidden().count(rank), name + "o_proj"));
  if (shape_.sinks != nullptr) shape_.sinks += groups.begin(rank) * group_heads;
  shape_.kv_heads = groups.count(rank);
  shape_.heads = shape_.kv_heads * group_heads;
  rotary_.heads = shape_.heads;
  part_ = &part;
  return {};
}

void AttentionBlock::forward(kernels::Kernels& kernels, float* x, int tokens, const float* cos_sin,
                             const kernels::KvLayer& cache,
                             const std::vector<kernels::SequenceRows>& sequences,
                             const LayerAdapters& adapters, AttentionWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  const int sequence_count = static_cast<int>(sequences.size());
  kernels.rms_norm(workspace.normed.data(), x, norm_, tokens, hidden_, epsilon_);
  const int64_t q_count = int64_t{shape_.heads} * shape_.head_size;
  const int64_t kv_count = int64_t{shape_.kv_heads} * shape_.head_size;
  const bool fused = qkv_.weight.data != nullptr;
  float* const q = workspace.qkv.data();
  float* const k = q + (fused ? q_count : tokens * q_count);
  float* const v = k + (fused ? kv_count : tokens * kv_count);
  const int64_t q_stride = fused ? qkv_.weight.rows : q_count;
  const int64_t kv_stride = fused ? qkv_.weight.rows : kv_count;
  if (fused) {
    kernels.linear(q, workspace.normed.data(), qkv_, tokens, Output::kOverwrite);
  } else {
    kernels.linear(q, workspace.normed.data(), q_, tokens, Output::kOverwrite);
    kernels.linear(k, workspace.normed.data(), k_, tokens, Output::kOverwrite);
    kernels.linear(v, workspace.normed.data(), v_, tokens, Output::kOverwrite);
  }
  const float* const normed = workspace.normed.data();
  adapters.add(kernels, lora::Linear::kQ, q, q_stride, normed);
  adapters.add(kernels, lora::Linear::kK, k, kv_stride, normed);
  adapters.add(kernels, lora::Linear::kV, v, kv_stride, normed);
  if (q_norm_ != nullptr) {
    kernels.rms_norm_heads(q, q_stride, q_norm_, tokens, shape_.heads, shape_.head_size, epsilon_);
    kernels.rms_norm_heads(k, kv_stride, k_norm_, tokens, shape_.kv_heads, shape_.head_size,
                           epsilon_);
  }
  kernels::RotaryShape rotary = rotary_;
  kernels.rotate(q, q_stride, cos_sin, tokens, rotary);
  rotary.heads = shape_.kv_heads;
  kernels.rotate(k, kv_stride, cos_sin, tokens, rotary);
  kernels.store_kv(cache, k, v, kv_stride, sequences.data(), sequence_count);
  const float* const mixed = mixed_heads(kernels, tokens, q, q_stride, cache, sequences, workspace);
  if (post_norm_ == nullptr || part_ != nullptr) {
    return add_output(kernels, x, mixed, tokens, adapters, workspace);
  }
  kernels.linear(workspace.normed.data(), mixed, o_, tokens, Output::kOverwrite);
  adapters.add(kernels, lora::Linear::kO, workspace.normed.data(), hidden_, mixed);
  kernels.add_rms_norm(x, workspace.normed.data(), post_norm_, tokens, hidden_, epsilon_);
}

void AttentionBlock::add_output(kernels::Kernels& kernels, float* x, const float* mixed, int tokens,
                                const LayerAdapters& adapters,
                                AttentionWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  float* const added = workspace.normed.data();  // no longer needed
  const int columns = o_.weight.rows;            // of this rank
  const auto add = [&](float* out) {
    if (residual_scale_ == 1.0f) {
      kernels.linear(out, mixed, o_, tokens, Output::kAccumulate);
      return adapters.add(kernels, lora::Linear::kO, out, columns, mixed);
    }
    kernels.linear(added, mixed, o_, tokens, Output::kOverwrite);
    adapters.add(kernels, lora::Linear::kO, added, columns, mixed);
    kernels.add_scaled(out, added, residual_scale_, tokens, columns);
  };
  if (part_ != nullptr) return part_->add_columns(x, tokens, add);
  add(x);
}

const float* AttentionBlock::mixed_heads(kernels::Kernels& kernels, int tokens, const float* q,
                                         int64_t q_stride, const kernels::KvLayer& cache,
                                         const std::vector<kernels::SequenceRows>& sequences,
                                         AttentionWorkspace& workspace) const {
  float* const mixed = workspace.mixed.data();
  float* const own = part_ != nullptr ? part_->room() : mixed;
  if (shape_.heads > 0) {
    kernels.attention(own, q, q_stride, cache, shape_, sequences.data(),
                      static_cast<int>(sequences.size()));
  }
  if (part_ == nullptr) return mixed;
  part_->exchange().all_gather(part_->kv_heads(),
                               {.part = own,
                                .part_stride = int64_t{shape_.heads} * shape_.head_size * kFloat,
                                .whole = mixed,
                                .whole_stride = o_.weight.cols * kFloat,
                                .column_bytes = o_.weight.cols / part_->kv_heads().rows() * kFloat},
                               tokens);
  return mixed;
}

int64_t AttentionBlock::weight_bytes() const {
  return matrix_bytes(qkv_.weight) + matrix_bytes(q_.weight) + matrix_bytes(k_.weight) +
         matrix_bytes(v_.weight) + matrix_bytes(o_.weight) + vectors_.bytes();
}

}  // namespace pelton::layers
