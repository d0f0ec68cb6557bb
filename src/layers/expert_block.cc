#include "layers/expert_block.h"

#include <cmath>

#include <fmt/format.h>

namespace pelton::layers {

Result<ExpertBlock> ExpertBlock::load(const checkpoint::Checkpoint& checkpoint, int layer) {
  const families::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int hidden = config.hidden_size;

  ExpertBlock block;
  block.hidden_ = hidden;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  TRY_ASSIGN(block.norm_, load_vector(checkpoint, prefix + "post_attention_layernorm.weight",
                                      hidden, block.vectors_));
  TRY_ASSIGN(block.router_,
             load_linear(checkpoint, prefix + "mlp.router", config.expert_count, hidden,
                         config.expert_bias ? Bias::kAdded : Bias::kNone, block.vectors_));
  TRY_ASSIGN(block.experts_, load_experts(checkpoint, prefix + "mlp.experts.",
                                          {.experts = config.expert_count,
                                           .inner = config.expert_intermediate_size,
                                           .hidden = hidden},
                                          block.vectors_));
  block.shape_ = {.experts_per_token = config.experts_per_token, .glu = glu_shape(config)};
  return block;
}

void ExpertBlock::forward(kernels::Kernels& kernels, float* x, int tokens,
                          FeedForwardWorkspace& workspace) const {
  kernels.rms_norm(workspace.normed.data(), x, norm_, tokens, hidden_, epsilon_);
  kernels.linear(workspace.router_logits.data(), workspace.normed.data(), router_, tokens,
                 kernels::Kernels::Output::kOverwrite);
  kernels.route_top_k(workspace.choices.data(), workspace.router_logits.data(), tokens,
                      experts_.gate.experts, shape_.experts_per_token);
  kernels.experts(x, workspace.normed.data(), workspace.choices.data(), experts_, shape_, tokens);
}

double ExpertBlock::weight_bytes(int tokens) const {
  const double experts = experts_.gate.experts;
  const double touched = experts * (1 - std::pow(1 - shape_.experts_per_token / experts, tokens));
  const int64_t expert =
      expert_bytes(experts_.gate) + expert_bytes(experts_.up) + expert_bytes(experts_.down);
  const int64_t router =
      matrix_bytes(router_.weight) + 4 * (int64_t{hidden_} + router_.weight.rows);
  return static_cast<double>(router) + touched * static_cast<double>(expert);
}

}  // namespace pelton::layers
