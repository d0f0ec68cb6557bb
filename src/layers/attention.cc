#include "layers/attention.h"

#include <algorithm>
#include <utility>

#include "layers/attention_block.h"
#include "layers/latent_attention.h"

namespace pelton::layers {
namespace {

// Elements of a token.
struct Widths {
  size_t qkv = 0;
  size_t absorbed = 0;
  size_t mixed = 0;
};

Widths widths_of(const families::ModelConfig& config) {
  const auto q = static_cast<size_t>(config.q_size());
  if (!config.is_latent()) {
    return {.qkv = q + 2 * static_cast<size_t>(config.kv_size()), .mixed = q};
  }
  const families::LatentConfig& latent = config.latent;
  const auto heads = static_cast<size_t>(config.head_count);
  const auto row = static_cast<size_t>(latent.kv_rank + latent.rope_size);
  const size_t values = heads * static_cast<size_t>(latent.value_size);
  return {.qkv = static_cast<size_t>(latent.q_rank) + std::max(q, values) + row,
          .absorbed = heads * row,
          .mixed = heads * static_cast<size_t>(latent.kv_rank)};
}

}  // namespace

AttentionWorkspace::AttentionWorkspace(const families::ModelConfig& config, int tokens) {
  const auto rows = static_cast<size_t>(tokens);
  const Widths widths = widths_of(config);
  normed.resize(rows * static_cast<size_t>(config.hidden_size));
  qkv.resize(rows * widths.qkv);
  absorbed.resize(rows * widths.absorbed);
  mixed.resize(rows * widths.mixed);
}

int64_t AttentionWorkspace::bytes() const {
  const size_t floats = normed.capacity() + qkv.capacity() + absorbed.capacity() + mixed.capacity();
  return static_cast<int64_t>(floats * sizeof(float));
}

Result<std::unique_ptr<Attention>> load_attention(const checkpoint::Checkpoint& checkpoint,
                                                  int layer, const RankPart* part) {
  if (checkpoint.config().is_latent()) {
    TRY_ASSIGN(LatentAttention attention, LatentAttention::load(checkpoint, layer));
    return std::unique_ptr<Attention>(std::make_unique<LatentAttention>(std::move(attention)));
  }
  TRY_ASSIGN(AttentionBlock block, AttentionBlock::load(checkpoint, layer, part));
  return std::unique_ptr<Attention>(std::make_unique<AttentionBlock>(std::move(block)));
}

}  // namespace pelton::layers
