#include "layers/gated_mlp.h"

namespace pelton::layers {

Result<GatedMlp> GatedMlp::load(const checkpoint::Checkpoint& checkpoint, const std::string& prefix,
                                int inner, Bias bias) {
  const int hidden = checkpoint.config().hidden_size;
  GatedMlp mlp;
  mlp.glu_ = glu_shape(checkpoint.config());
  const auto linear = [&](const char* name, int rows, int cols) {
    return load_linear(checkpoint, prefix + name, rows, cols, bias, mlp.vectors_);
  };
  TRY_ASSIGN(mlp.gate_, linear("gate_proj", inner, hidden));
  TRY_ASSIGN(mlp.up_, linear("up_proj", inner, hidden));
  TRY_ASSIGN(mlp.down_, linear("down_proj", hidden, inner));
  return mlp;
}

void GatedMlp::forward(kernels::Kernels& kernels, float* out, const float* x, int tokens,
                       kernels::Kernels::Output output, const LayerAdapters& adapters,
                       FeedForwardWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  const int inner = gate_.weight.rows;
  kernels.linear(workspace.gate.data(), x, gate_, tokens, Output::kOverwrite);
  kernels.linear(workspace.up.data(), x, up_, tokens, Output::kOverwrite);
  adapters.add(kernels, lora::Linear::kGate, workspace.gate.data(), inner, x);
  adapters.add(kernels, lora::Linear::kUp, workspace.up.data(), inner, x);
  kernels.glu(workspace.gate.data(), workspace.up.data(), int64_t{tokens} * inner, glu_);
  kernels.linear(out, workspace.gate.data(), down_, tokens, output);
  adapters.add(kernels, lora::Linear::kDown, out, down_.weight.rows, workspace.gate.data());
}

int64_t GatedMlp::weight_bytes() const {
  return matrix_bytes(gate_.weight) + matrix_bytes(up_.weight) + matrix_bytes(down_.weight);
}

}  // namespace pelton::layers
