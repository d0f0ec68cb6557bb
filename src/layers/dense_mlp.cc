#include "layers/dense_mlp.h"

#include <fmt/format.h>

namespace pelton::layers {

Result<DenseMlp> DenseMlp::load(const checkpoint::Checkpoint& checkpoint, int layer) {
  const families::ModelConfig& config = checkpoint.config();
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int hidden = config.hidden_size;
  const int inner = config.intermediate_size;

  DenseMlp mlp;
  mlp.hidden_ = hidden;
  mlp.epsilon_ = static_cast<float>(config.rms_norm_epsilon);
  mlp.glu_ = glu_shape(config);
  TRY_ASSIGN(mlp.norm_, load_vector(checkpoint, prefix + "post_attention_layernorm.weight", hidden,
                                    mlp.vectors_));
  TRY_ASSIGN(mlp.gate_.weight,
             load_matrix(checkpoint, prefix + "mlp.gate_proj.weight", inner, hidden));
  TRY_ASSIGN(mlp.up_.weight, load_matrix(checkpoint, prefix + "mlp.up_proj.weight", inner, hidden));
  TRY_ASSIGN(mlp.down_.weight,
             load_matrix(checkpoint, prefix + "mlp.down_proj.weight", hidden, inner));
  return mlp;
}

void DenseMlp::forward(kernels::Kernels& kernels, float* x, int tokens,
                       FeedForwardWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  kernels.rms_norm(workspace.normed.data(), x, norm_, tokens, hidden_, epsilon_);
  kernels.linear(workspace.gate.data(), workspace.normed.data(), gate_, tokens, Output::kOverwrite);
  kernels.linear(workspace.up.data(), workspace.normed.data(), up_, tokens, Output::kOverwrite);
  kernels.glu(workspace.gate.data(), workspace.up.data(), int64_t{tokens} * gate_.weight.rows,
              glu_);
  kernels.linear(x, workspace.gate.data(), down_, tokens, Output::kAccumulate);
}

double DenseMlp::weight_bytes(int /*tokens*/) const {
  return static_cast<double>(matrix_bytes(gate_.weight) + matrix_bytes(up_.weight) +
                             matrix_bytes(down_.weight) + vectors_.bytes());
}

}  // namespace pelton::layers
