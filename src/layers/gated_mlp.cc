#include "layers/gated_mlp.h"

namespace pelton::layers {
namespace {

constexpr int kBlock = 32;  // of which ranks have whole ones (RankPart::mlp_blocks)

}  // namespace

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

Result<void> GatedMlp::keep_part(const RankPart& part, const std::string& name) {
  const parallel::Share& blocks = part.mlp_blocks();
  const parallel::Share& hidden = part.hidden();
  const int rank = part.rank();
  const int first = blocks.begin(rank) * kBlock;
  const int count = blocks.count(rank) * kBlock;
  TRY_ASSIGN(gate_, rows_of(gate_, first, count, name + "gate_proj"));
  TRY_ASSIGN(up_, rows_of(up_, first, count, name + "up_proj"));
  TRY_ASSIGN(down_, rows_of(down_, hidden.begin(rank), hidden.count(rank), name + "down_proj"));
  part_ = &part;
  return {};
}

// What gate and up have made lies side by side in `gate`, and comes together in `up`.
void GatedMlp::add_shared(kernels::Kernels& kernels, float* x, float* normed, int tokens,
                          float scale, FeedForwardWorkspace& workspace) const {
  using Output = kernels::Kernels::Output;
  constexpr int64_t kBlockBytes = kBlock * sizeof(float);
  const parallel::Share& blocks = part_->mlp_blocks();
  float* const own = workspace.gate.data();
  float* const all = workspace.up.data();
  kernels.linear(own, normed, gate_, tokens, Output::kOverwrite);
  kernels.linear(all, normed, up_, tokens, Output::kOverwrite);
  kernels.glu(own, all, int64_t{tokens} * gate_.weight.rows, glu_);
  part_->exchange().all_gather(blocks,
                               {.part = own,
                                .part_stride = blocks.count(part_->rank()) * kBlockBytes,
                                .whole = all,
                                .whole_stride = blocks.rows() * kBlockBytes,
                                .column_bytes = kBlockBytes},
                               tokens);
  part_->add_columns(x, tokens, [&](float* columns) {
    if (scale == 1.0f) return kernels.linear(columns, all, down_, tokens, Output::kAccumulate);
    kernels.linear(normed, all, down_, tokens, Output::kOverwrite);
    kernels.add_scaled(columns, normed, scale, tokens, down_.weight.rows);
  });
}

int64_t GatedMlp::weight_bytes() const {
  return matrix_bytes(gate_.weight) + matrix_bytes(up_.weight) + matrix_bytes(down_.weight);
}

}  // namespace pelton::layers
