#include "layers/expert_block.h"

#include <cmath>

#include <fmt/format.h>

namespace pelton::layers {

ExpertWorkspace::ExpertWorkspace(const checkpoint::ModelConfig& config, int tokens)
    : normed(size_t{1} * tokens * config.hidden_size),
      router_logits(size_t{1} * tokens * config.expert_count),
      choices(size_t{1} * tokens * config.experts_per_token) {}

int64_t ExpertWorkspace::bytes() const {
  return static_cast<int64_t>((normed.capacity() + router_logits.capacity()) * sizeof(float) +
                              choices.capacity() * sizeof(kernels::ExpertChoice));
}

Result<ExpertBlock> ExpertBlock::load(const checkpoint::Checkpoint& checkpoint, int layer) {
  const checkpoint::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int hidden = config.hidden_size;

  ExpertBlock block;
  block.hidden_ = hidden;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  TRY_ASSIGN(block.norm_, load_vector(checkpoint, prefix + "post_attention_layernorm.weight",
                                      hidden, block.vectors_));
  TRY_ASSIGN(block.router_, load_linear(checkpoint, prefix + "mlp.router", config.expert_count,
                                        hidden, block.vectors_));
  TRY_ASSIGN(block.experts_, load_experts(checkpoint, prefix + "mlp.experts.",
                                          {.experts = config.expert_count,
                                           .inner = config.intermediate_size,
                                           .hidden = hidden},
                                          block.vectors_));
  block.shape_ = {.experts_per_token = config.experts_per_token,
                  .swiglu_alpha = static_cast<float>(config.swiglu_alpha),
                  .swiglu_limit = static_cast<float>(config.swiglu_limit)};
  return block;
}

void ExpertBlock::forward(kernels::Kernels& kernels, float* x, int tokens,
                          ExpertWorkspace& workspace) const {
  kernels.rms_norm(workspace.normed.data(), x, norm_, tokens, hidden_, epsilon_);
  kernels.linear(workspace.router_logits.data(), workspace.normed.data(), router_, tokens,
                 kernels::Kernels::Output::kOverwrite);
  kernels.choose_experts(workspace.choices.data(), workspace.router_logits.data(), tokens,
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
