#include "checkpoint/gguf_mix.h"

#include <charconv>
#include <string_view>

namespace pelton::checkpoint {
namespace {

using families::ExpectedTensor;
using families::ModelConfig;
using families::TensorKind;
using tensor::DType;

// Of "model.layers.N...."; -1: it is in no layer.
int layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  int layer = -1;
  if (name.starts_with(kLayers)) {
    std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  }
  return layer;
}

// Where rounding shows most: the first and the last layers, and every third one.
bool is_sensitive(int layer, int count) {
  return layer < count / 8 || layer >= 7 * count / 8 || (layer - count / 8) % 3 == 2;
}

DType q4_k_m(const ExpectedTensor& wanted, const ModelConfig& config) {
  const std::string_view name = wanted.name;
  const auto is = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const bool is_embedding = wanted.kind == TensorKind::kEmbedding;
  if (wanted.kind == TensorKind::kHead || (is_embedding && config.tied_head)) return DType::kQ6_K;
  const bool sensitive = is_sensitive(layer_of(name), config.layer_count());
  // Small beside the experts.
  const bool of_eight = config.expert_count == 8;
  if (is("self_attn.v_proj.weight") || is("self_attn.kv_b_proj.weight")) {
    if (of_eight) return DType::kQ8_0;
    if (sensitive) return DType::kQ6_K;
    const bool is_70b = config.layer_count() == 80 && config.kv_head_count < config.head_count;
    return is_70b ? DType::kQ5_K : DType::kQ4_K;
  }
  if (is("self_attn.k_proj.weight") && of_eight) return DType::kQ8_0;
  if (is("self_attn.o_proj.weight") && of_eight) return DType::kQ5_K;
  const bool is_down = is("down_proj.weight") || is("down_exps");
  return is_down && sensitive ? DType::kQ6_K : DType::kQ4_K;
}

// Of blocks of 32.
DType smaller_block(DType type) {
  switch (type) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kBf16;
  }
}

}  // namespace

DType mixed_type(DType matrices, const ExpectedTensor& wanted, const ModelConfig& config) {
  DType type = matrices == DType::kQ4_K ? q4_k_m(wanted, config) : matrices;
  const int64_t columns = wanted.shape.back();
  while (tensor::is_block_type(type) && columns % tensor::block_elements(type) != 0) {
    type = smaller_block(type);
  }
  return type;
}

}  // namespace pelton::checkpoint
