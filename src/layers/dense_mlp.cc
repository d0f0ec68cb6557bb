#include "layers/dense_mlp.h"

#include <fmt/format.h>

namespace pelton::layers {

Result<DenseMlp> DenseMlp::load(const checkpoint::Checkpoint& checkpoint, int layer,
                                const RankPart* part) {
  const families::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int hidden = config.hidden_size;

  DenseMlp block;
  block.hidden_ = hidden;
  block.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  block.residual_scale_ = static_cast<float>(config.residual_scale);
  TRY_ASSIGN(block.norm_,
             load_norm(checkpoint, feed_forward_norm(config, layer), hidden, block.vectors_));
  if (config.post_norms) {
    TRY_ASSIGN(block.post_norm_, load_norm(checkpoint, prefix + "post_feedforward_layernorm.weight",
                                           hidden, block.vectors_));
  }
  TRY_ASSIGN(block.mlp_, GatedMlp::load(checkpoint, prefix + "mlp.", config.intermediate_size,
                                        config.mlp_bias ? Bias::kAdded : Bias::kNone));
  if (part != nullptr) TRY(block.mlp_.keep_part(*part, prefix + "mlp."));
  block.is_shared_ = part != nullptr;
  return block;
}

void DenseMlp::forward(kernels::Kernels& kernels, float* x, int tokens,
                       const LayerAdapters& adapters, FeedForwardWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  float* const normed = workspace.normed.data();
  kernels.rms_norm(normed, x, norm_, tokens, hidden_, epsilon_);
  if (is_shared_) {
    return mlp_.add_shared(kernels, x, normed, tokens, residual_scale_, workspace);
  }
  const bool is_scaled = residual_scale_ != 1.0f;
  if (post_norm_ == nullptr && !is_scaled) {
    return mlp_.forward(kernels, x, normed, tokens, Output::kAccumulate, adapters, workspace);
  }
  mlp_.forward(kernels, normed, normed, tokens, Output::kOverwrite, adapters, workspace);
  if (is_scaled) return kernels.add_scaled(x, normed, residual_scale_, tokens, hidden_);
  kernels.add_rms_norm(x, normed, post_norm_, tokens, hidden_, epsilon_);
}

double DenseMlp::weight_bytes(int /*tokens*/) const {
  return static_cast<double>(mlp_.weight_bytes() + vectors_.bytes());
}

}  // namespace pelton::layers
