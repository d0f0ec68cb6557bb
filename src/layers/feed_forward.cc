#include "layers/feed_forward.h"

#include <utility>

#include <fmt/format.h>

#include "layers/dense_mlp.h"
#include "layers/expert_block.h"

namespace pelton::layers {

FeedForwardWorkspace::FeedForwardWorkspace(const families::ModelConfig& config, int tokens)
    : normed(size_t{1} * tokens * config.hidden_size),
      gate(size_t{1} * tokens * config.widest_mlp()),
      up(size_t{1} * tokens * config.widest_mlp()),
      router_logits(size_t{1} * tokens * config.expert_count),
      choices(size_t{1} * tokens * config.experts_per_token) {}

int64_t FeedForwardWorkspace::bytes() const {
  const size_t floats =
      normed.capacity() + gate.capacity() + up.capacity() + router_logits.capacity();
  return static_cast<int64_t>(floats * sizeof(float) +
                              choices.capacity() * sizeof(kernels::ExpertChoice));
}

Result<std::unique_ptr<FeedForward>> load_feed_forward(const checkpoint::Checkpoint& checkpoint,
                                                       int layer, const RankPart* part) {
  if (checkpoint.config().layers[static_cast<size_t>(layer)].has_experts) {
    TRY_ASSIGN(ExpertBlock block, ExpertBlock::load(checkpoint, layer, part));
    return std::unique_ptr<FeedForward>(std::make_unique<ExpertBlock>(std::move(block)));
  }
  TRY_ASSIGN(DenseMlp mlp, DenseMlp::load(checkpoint, layer, part));
  return std::unique_ptr<FeedForward>(std::make_unique<DenseMlp>(std::move(mlp)));
}

std::string feed_forward_norm(const families::ModelConfig& config, int layer) {
  return fmt::format("model.layers.{}.{}.weight", layer,
                     config.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
}

kernels::GluShape glu_shape(const families::ModelConfig& config) {
  using Kind = kernels::GluShape::Kind;
  Kind kind = Kind::kSwiglu;
  if (config.glu == families::Glu::kClampedSwiglu) kind = Kind::kClampedSwiglu;
  if (config.glu == families::Glu::kGegluTanh) kind = Kind::kGegluTanh;
  return {.kind = kind,
          .alpha = static_cast<float>(config.swiglu_alpha),
          .limit = static_cast<float>(config.swiglu_limit)};
}

}  // namespace pelton::layers
