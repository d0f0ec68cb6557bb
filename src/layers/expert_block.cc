#include "layers/expert_block.h"

#include <cmath>

#include <fmt/format.h>

namespace pelton::layers {
namespace {

kernels::RouterShape router_shape(const families::ModelConfig& config) {
  using Kind = kernels::RouterShape::Kind;
  const families::RouterConfig& router = config.router;
  Kind kind = Kind::kSoftmaxOfTopK;
  if (router.kind == families::RouterKind::kSoftmax) kind = Kind::kSoftmax;
  if (router.kind == families::RouterKind::kSigmoid) kind = Kind::kSigmoid;
  return {.kind = kind,
          .experts = config.expert_count,
          .k = config.experts_per_token,
          .groups = router.groups,
          .groups_kept = router.groups_kept,
          .group_by_two = router.group_by_two,
          .normalises = router.normalises,
          .scale = static_cast<float>(router.scale)};
}

}  // namespace

Result<ExpertBlock> ExpertBlock::load(const checkpoint::Checkpoint& checkpoint, int layer,
                                      const RankPart* part) {
  const families::ModelConfig& config = checkpoint.config();
  const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
  const int hidden = config.hidden_size;

  if (config.residual_scale != 1.0 || config.post_norms) {
    return Error{ErrorCode::kUnsupported,
                 "experts with a scale or a norm behind the block are not computed yet"};
  }
  ExpertBlock block;
  block.hidden_ = hidden;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  TRY_ASSIGN(block.norm_,
             load_norm(checkpoint, feed_forward_norm(config, layer), hidden, block.vectors_));
  TRY_ASSIGN(block.router_,
             load_linear(checkpoint, mlp + "router", config.expert_count, hidden,
                         config.expert_bias ? Bias::kAdded : Bias::kNone, block.vectors_));
  block.router_shape_ = router_shape(config);
  if (config.router.correction) {
    TRY_ASSIGN(block.router_shape_.correction,
               load_vector(checkpoint, mlp + "router.e_score_correction_bias", config.expert_count,
                           block.vectors_));
  }
  const ExpertSizes sizes{
      .experts = config.expert_count, .inner = config.expert_intermediate_size, .hidden = hidden};
  if (part == nullptr) {
    TRY_ASSIGN(block.experts_, load_experts(checkpoint, mlp + "experts.", sizes, block.vectors_));
  } else {
    FloatVectors whole;
    TRY_ASSIGN(const kernels::ExpertWeights experts,
               load_experts(checkpoint, mlp + "experts.", sizes, whole));
    block.part_ = part;
    block.dealt_ = part->dealt_experts(layer);
    TRY_ASSIGN(block.experts_,
               block.dealt_ != nullptr
                   ? own_experts(experts, *block.dealt_, mlp + "experts", block.vectors_)
                   : part_of(experts, *part, mlp + "experts", block.vectors_));
  }
  block.shape_ = {.experts_per_token = config.experts_per_token, .glu = glu_shape(config)};
  if (config.shared_expert_count > 0) {
    TRY_ASSIGN(block.shared_,
               GatedMlp::load(checkpoint, mlp + "shared_experts.",
                              config.shared_expert_count * sizes.inner, Bias::kNone));
  }
  return block;
}

void ExpertBlock::forward(kernels::Kernels& kernels, float* x, int tokens,
                          const LayerAdapters& adapters, FeedForwardWorkspace& workspace) const {
  kernels.rms_norm(workspace.normed.data(), x, norm_, tokens, hidden_, epsilon_);
  kernels.linear(workspace.router_logits.data(), workspace.normed.data(), router_, tokens,
                 kernels::Kernels::Output::kOverwrite);
  kernels.route(workspace.choices.data(), workspace.router_logits.data(), tokens, router_shape_);
  kernels::MoeShape shape = shape_;
  shape.adapters = adapters.experts();
  if (dealt_ != nullptr) {
    ExpertRows rows(*dealt_, part_->choice_share(), part_->exchange());
    shape.dealt = &rows;
    return kernels.experts(x, workspace.normed.data(), workspace.choices.data(), experts_, shape,
                           tokens);
  }
  if (part_ != nullptr) {
    ExpertExchange exchange(*part_);
    shape.exchange = &exchange;
    return part_->add_columns(x, tokens, [&](float* own) {
      kernels.experts(own, workspace.normed.data(), workspace.choices.data(), experts_, shape,
                      tokens);
    });
  }
  kernels.experts(x, workspace.normed.data(), workspace.choices.data(), experts_, shape, tokens);
  if (shared_) {
    shared_->forward(kernels, x, workspace.normed.data(), tokens,
                     kernels::Kernels::Output::kAccumulate, LayerAdapters(), workspace);
  }
}

double ExpertBlock::weight_bytes(int tokens) const {
  const double all = router_shape_.experts;
  const double touched =
      experts_.gate.experts * (1 - std::pow(1 - shape_.experts_per_token / all, tokens));
  const int64_t expert =
      expert_bytes(experts_.gate) + expert_bytes(experts_.up) + expert_bytes(experts_.down);
  const int64_t router =
      matrix_bytes(router_.weight) + 4 * (int64_t{hidden_} + router_.weight.rows);
  const int64_t shared = shared_ ? shared_->weight_bytes() : 0;
  return static_cast<double>(router + shared) + touched * static_cast<double>(expert);
}

}  // namespace pelton::layers
