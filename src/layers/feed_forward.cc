#include "layers/feed_forward.h"

#include <utility>

#include "layers/dense_mlp.h"
#include "layers/expert_block.h"

namespace pelton::layers {

FeedForwardWorkspace::FeedForwardWorkspace(const families::ModelConfig& config, int tokens)
    : normed(size_t{1} * tokens * config.hidden_size),
      gate(size_t{1} * tokens * config.intermediate_size),
      up(size_t{1} * tokens * config.intermediate_size),
      router_logits(size_t{1} * tokens * config.expert_count),
      choices(size_t{1} * tokens * config.experts_per_token) {}

int64_t FeedForwardWorkspace::bytes() const {
  const size_t floats =
      normed.capacity() + gate.capacity() + up.capacity() + router_logits.capacity();
  return static_cast<int64_t>(floats * sizeof(float) +
                              choices.capacity() * sizeof(kernels::ExpertChoice));
}

Result<std::unique_ptr<FeedForward>> load_feed_forward(const checkpoint::Checkpoint& checkpoint,
                                                       int layer) {
  if (checkpoint.config().layers[static_cast<size_t>(layer)].has_experts) {
    TRY_ASSIGN(ExpertBlock block, ExpertBlock::load(checkpoint, layer));
    return std::unique_ptr<FeedForward>(std::make_unique<ExpertBlock>(std::move(block)));
  }
  TRY_ASSIGN(DenseMlp mlp, DenseMlp::load(checkpoint, layer));
  return std::unique_ptr<FeedForward>(std::make_unique<DenseMlp>(std::move(mlp)));
}

kernels::GluShape glu_shape(const families::ModelConfig& config) {
  const bool clamped = config.glu == families::Glu::kClampedSwiglu;
  return {
      .kind = clamped ? kernels::GluShape::Kind::kClampedSwiglu : kernels::GluShape::Kind::kSwiglu,
      .alpha = static_cast<float>(config.swiglu_alpha),
      .limit = static_cast<float>(config.swiglu_limit)};
}

}  // namespace pelton::layers
