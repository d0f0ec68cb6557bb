#include "layers/expert_block.h"

#include <fmt/format.h>

#include "layers/weights.h"

namespace pelton::layers {

ExpertWorkspace::ExpertWorkspace(const checkpoint::ModelConfig& config, int tokens)
    : normed(size_t{1} * tokens * config.hidden_size),
      router_logits(size_t{1} * tokens * config.expert_count),
      choices(size_t{1} * tokens * config.experts_per_token) {}

Result<ExpertBlock> ExpertBlock::load(const checkpoint::Checkpoint& checkpoint, int layer) {
  const checkpoint::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string experts = prefix + "mlp.experts.";
  const int hidden = config.hidden_size;
  const int intermediate = config.intermediate_size;

  ExpertBlock block;
  block.hidden_ = hidden;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  TRY_ASSIGN(block.norm_,
             bf16_vector(checkpoint, prefix + "post_attention_layernorm.weight", hidden));
  TRY_ASSIGN(block.router_,
             bf16_linear(checkpoint, prefix + "mlp.router", config.expert_count, hidden));
  TRY_ASSIGN(block.gate_up_, mxfp4_experts(checkpoint, experts + "gate_up_proj",
                                           config.expert_count, 2 * intermediate, hidden));
  TRY_ASSIGN(block.down_, mxfp4_experts(checkpoint, experts + "down_proj", config.expert_count,
                                        hidden, intermediate));
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
                         gate_up_.experts, shape_.experts_per_token);
  kernels.experts(x, workspace.normed.data(), workspace.choices.data(), gate_up_, down_, shape_,
                  tokens);
}

}  // namespace pelton::layers
