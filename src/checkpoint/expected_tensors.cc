#include "checkpoint/expected_tensors.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace pelton::checkpoint {
namespace {

using tensor::DType;

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

class List {
 public:
  void bf16(std::string name, std::vector<int64_t> shape, TensorKind kind) {
    tensors_.push_back({std::move(name), DType::kBf16, std::move(shape), kind, false});
  }
  void mxfp4(const std::string& name, int64_t experts, int64_t rows, int64_t columns) {
    tensors_.push_back({name + "_blocks",
                        DType::kU8,
                        {experts, rows, columns / 32, 16},
                        TensorKind::kExperts,
                        false});
    tensors_.push_back(
        {name + "_scales", DType::kU8, {experts, rows, columns / 32}, TensorKind::kExperts, true});
  }
  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  std::vector<ExpectedTensor> tensors_;
};

void add_layer(List& list, const ModelConfig& config, const std::string& layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t experts = config.expert_count;
  const int64_t q = int64_t{config.head_count} * config.head_size;
  const int64_t kv = int64_t{config.kv_head_count} * config.head_size;
  const std::string attention = layer + "self_attn.";
  const std::string mlp = layer + "mlp.";
  list.bf16(layer + "input_layernorm.weight", {hidden}, TensorKind::kNorms);
  list.bf16(attention + "o_proj.bias", {hidden}, TensorKind::kAttention);
  list.bf16(attention + "o_proj.weight", {hidden, q}, TensorKind::kAttention);
  list.bf16(attention + "q_proj.bias", {q}, TensorKind::kAttention);
  list.bf16(attention + "k_proj.bias", {kv}, TensorKind::kAttention);
  list.bf16(attention + "v_proj.bias", {kv}, TensorKind::kAttention);
  list.bf16(attention + "q_proj.weight", {q, hidden}, TensorKind::kAttention);
  list.bf16(attention + "k_proj.weight", {kv, hidden}, TensorKind::kAttention);
  list.bf16(attention + "v_proj.weight", {kv, hidden}, TensorKind::kAttention);
  list.bf16(attention + "sinks", {config.head_count}, TensorKind::kAttention);
  list.bf16(mlp + "router.bias", {experts}, TensorKind::kRouter);
  list.bf16(mlp + "router.weight", {experts, hidden}, TensorKind::kRouter);
  list.bf16(mlp + "experts.gate_up_proj_bias", {experts, 2 * inner}, TensorKind::kExperts);
  list.mxfp4(mlp + "experts.gate_up_proj", experts, 2 * inner, hidden);
  list.bf16(mlp + "experts.down_proj_bias", {experts, hidden}, TensorKind::kExperts);
  list.mxfp4(mlp + "experts.down_proj", experts, hidden, inner);
  list.bf16(layer + "post_attention_layernorm.weight", {hidden}, TensorKind::kNorms);
}

}  // namespace

int64_t ExpectedTensor::bytes() const {
  return product(shape) * static_cast<int64_t>(tensor::dtype_bytes(dtype));
}

int64_t ExpectedTensor::parameters() const {
  if (is_scales) return 0;
  return product(shape) * (dtype == DType::kU8 ? 2 : 1);
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  std::vector<std::string> layers;
  for (int i = 0; i < config.layer_count; ++i) layers.push_back(std::to_string(i));
  std::sort(layers.begin(), layers.end());
  List list;
  for (const std::string& layer : layers) add_layer(list, config, "model.layers." + layer + ".");
  const int64_t hidden = config.hidden_size;
  const int64_t vocab = config.vocab_size;
  list.bf16("model.embed_tokens.weight", {vocab, hidden}, TensorKind::kEmbedding);
  list.bf16("model.norm.weight", {hidden}, TensorKind::kNorms);
  list.bf16("lm_head.weight", {vocab, hidden}, TensorKind::kHead);
  return list.take();
}

}  // namespace pelton::checkpoint
