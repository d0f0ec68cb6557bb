#include "families/expected_tensors.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "families/family.h"

namespace pelton::families {
namespace {

using tensor::DType;

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

class List {
 public:
  List(const ModelConfig& config, WeightLayout layout)
      : layout_(layout),
        any_plain_type_(config.family->any_plain_type),
        expert_files_(config.family->expert_files),
        expert_bias_(config.expert_bias),
        quantization_(config.quantization),
        int_weights_(config.int_weights) {}

  bool gguf() const {
    return layout_ == WeightLayout::kGguf || layout_ == WeightLayout::kGgufFused;
  }
  bool tiled() const { return layout_ == WeightLayout::kTiled; }
  void vector(std::string name, std::vector<int64_t> shape, TensorKind kind) {
    bf16(std::move(name), std::move(shape), kind);
    if (gguf() || tiled()) tensors_.back().dtype = DType::kF32;
    if (gguf() || tiled() || any_plain_type_) tensors_.back().allowed = AllowedTypes::kVector;
  }
  void matrix(std::string name, std::vector<int64_t> shape, TensorKind kind) {
    bf16(std::move(name), std::move(shape), kind);
    if (gguf() && kind == TensorKind::kRouter) tensors_.back().dtype = DType::kF32;
    if (gguf() || tiled()) {
      tensors_.back().allowed = AllowedTypes::kMatrix;
    } else if (any_plain_type_) {
      tensors_.back().allowed = AllowedTypes::kVector;
    }
  }
  // The weight of a product in a layer: as `matrix`, or quantized with its scales.
  void product(const std::string& name, int64_t rows, int64_t columns, TensorKind kind) {
    const bool plain = gguf() || tiled() || quantization_ == WeightQuantization::kNone;
    if (plain) return matrix(name, {rows, columns}, kind);
    if (quantization_ >= WeightQuantization::kGptq) return integers(name, rows, columns, kind);
    tensors_.push_back({name, DType::kF8E4m3, {rows, columns}, kind});
    if (quantization_ != WeightQuantization::kF8Blocks) {
      std::vector<int64_t> shape = {1};
      if (quantization_ == WeightQuantization::kF8Rows) shape = {rows, 1};
      tensors_.push_back({name + "_scale", DType::kF32, shape, kind, true, AllowedTypes::kVector});
      return;
    }
    const auto blocks = [](int64_t count) { return (count + kF8Block - 1) / kF8Block; };
    tensors_.push_back({name + "_scale_inv",
                        DType::kF32,
                        {blocks(rows), blocks(columns)},
                        kind,
                        true,
                        AllowedTypes::kVector});
  }
  // name: "....weight". Sizes that do not divide are refused where they are read.
  void integers(const std::string& name, int64_t rows, int64_t columns, TensorKind kind) {
    const std::string base = name.substr(0, name.size() - std::string_view("weight").size());
    const int64_t group = int_weights_.group_size > 0 ? int_weights_.group_size : columns;
    const int64_t groups = (columns + group - 1) / group;
    const int per_word = 32 / int_weights_.bits;
    const auto add = [&](const char* suffix, DType dtype, std::vector<int64_t> shape) {
      tensors_.push_back({base + suffix, dtype, std::move(shape), kind, true});
    };
    const auto codes = [&](const char* suffix, std::vector<int64_t> shape) {
      add(suffix, DType::kI32, std::move(shape));
      tensors_.back().is_scales = false;
      tensors_.back().numbers = per_word;
    };
    switch (quantization_) {
      case WeightQuantization::kGptq:
        codes("qweight", {columns / per_word, rows});
        add("g_idx", DType::kI32, {columns});
        break;
      case WeightQuantization::kAwq:
        codes("qweight", {columns, rows / per_word});
        break;
      default:
        if (int_weights_.in_bytes) {
          tensors_.push_back({name, DType::kI8, {rows, columns}, kind});
        } else {
          codes("weight_packed", {rows, columns / per_word});
        }
        add("weight_scale", DType::kBf16, {rows, groups});
        tensors_.back().allowed = AllowedTypes::kVector;
        if (int_weights_.in_bytes) return;
        add("weight_shape", DType::kI64, {2});
        if (!int_weights_.symmetric) {
          add("weight_zero_point", DType::kI32, {rows / per_word, groups});
        }
        return;
    }
    add("qzeros", DType::kI32, {groups, rows / per_word});
    add("scales", DType::kF16, {groups, rows});
    tensors_.back().allowed = AllowedTypes::kVector;
  }
  // Down, gate and up of a gated MLP.
  void mlp(const std::string& name, int64_t inner, int64_t hidden, TensorKind kind) {
    product(name + "down_proj.weight", hidden, inner, kind);
    product(name + "gate_proj.weight", inner, hidden, kind);
    product(name + "up_proj.weight", inner, hidden, kind);
  }
  // Rows of all experts, as GGUF has them, and their biases.
  void rows(const std::string& name, int64_t experts, int64_t rows, int64_t columns) {
    if (expert_bias_) vector(name + "_bias", {experts, rows}, TensorKind::kExperts);
    tensors_.push_back({name,
                        DType::kMxfp4,
                        {experts, rows, columns},
                        TensorKind::kExperts,
                        false,
                        AllowedTypes::kExperts});
  }
  void tiles(const std::string& name, int64_t experts, int64_t rows, int64_t columns) {
    vector(name + ".bias", {experts, rows}, TensorKind::kExperts);
    tensors_.push_back({name + ".weight",
                        DType::kMxfp4Tiles,
                        {experts, rows, columns},
                        TensorKind::kExperts,
                        false,
                        AllowedTypes::kTiledExperts});
  }
  void experts(const std::string& mlp, int64_t count, int64_t inner, int64_t hidden) {
    const std::string name = mlp + "experts.";
    switch (layout_) {
      case WeightLayout::kPublished:
        if (expert_files_ == ExpertFiles::kApart) {
          for (int64_t e = 0; e < count; ++e) {
            this->mlp(name + std::to_string(e) + ".", inner, hidden, TensorKind::kExperts);
          }
          return;
        }
        bf16(name + "gate_up_proj_bias", {count, 2 * inner}, TensorKind::kExperts);
        mxfp4(name + "gate_up_proj", count, 2 * inner, hidden);
        bf16(name + "down_proj_bias", {count, hidden}, TensorKind::kExperts);
        mxfp4(name + "down_proj", count, hidden, inner);
        return;
      case WeightLayout::kBf16Experts:
        bf16(name + "gate_up_proj_bias", {count, 2 * inner}, TensorKind::kExperts);
        bf16(name + "gate_up_proj", {count, hidden, 2 * inner}, TensorKind::kExperts);
        bf16(name + "down_proj_bias", {count, hidden}, TensorKind::kExperts);
        bf16(name + "down_proj", {count, inner, hidden}, TensorKind::kExperts);
        return;
      case WeightLayout::kFusedExperts:
        matrix(name + "gate_up_proj", {count, 2 * inner, hidden}, TensorKind::kExperts);
        matrix(name + "down_proj", {count, hidden, inner}, TensorKind::kExperts);
        return;
      case WeightLayout::kGguf:
        rows(name + "gate_exps", count, inner, hidden);
        rows(name + "up_exps", count, inner, hidden);
        rows(name + "down_exps", count, hidden, inner);
        return;
      case WeightLayout::kGgufFused:
        rows(name + "gate_up_exps", count, 2 * inner, hidden);
        rows(name + "down_exps", count, hidden, inner);
        return;
      case WeightLayout::kTiled:
        tiles(name + "gate_up", count, 2 * inner, hidden);
        tiles(name + "down", count, hidden, inner);
        return;
    }
  }
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
  const WeightLayout layout_;
  const bool any_plain_type_;
  const ExpertFiles expert_files_;
  const bool expert_bias_;
  const WeightQuantization quantization_;
  const IntWeights int_weights_;
  std::vector<ExpectedTensor> tensors_;
};

void add_queries_keys_values(List& list, const ModelConfig& config, const std::string& attention) {
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  const int64_t hidden = config.hidden_size;
  if (list.tiled()) {
    if (config.qkv_bias) {
      list.vector(attention + "qkv_proj.bias", {q + 2 * kv}, TensorKind::kAttention);
    }
    list.matrix(attention + "qkv_proj.weight", {q + 2 * kv, hidden}, TensorKind::kAttention);
    return;
  }
  if (config.qkv_bias) {
    list.vector(attention + "q_proj.bias", {q}, TensorKind::kAttention);
    list.vector(attention + "k_proj.bias", {kv}, TensorKind::kAttention);
    list.vector(attention + "v_proj.bias", {kv}, TensorKind::kAttention);
  }
  list.product(attention + "q_proj.weight", q, hidden, TensorKind::kAttention);
  list.product(attention + "k_proj.weight", kv, hidden, TensorKind::kAttention);
  list.product(attention + "v_proj.weight", kv, hidden, TensorKind::kAttention);
}

void add_latent_attention(List& list, const ModelConfig& config, const std::string& attention) {
  const LatentConfig& latent = config.latent;
  const int64_t hidden = config.hidden_size;
  const int64_t heads = config.head_count;
  constexpr TensorKind kKind = TensorKind::kAttention;
  list.vector(attention + "kv_a_layernorm.weight", {latent.kv_rank}, kKind);
  list.product(attention + "kv_a_proj_with_mqa.weight", latent.kv_rank + latent.rope_size, hidden,
               kKind);
  if (latent.keys_transposed) {
    list.matrix(attention + "k_b_proj.weight", {heads, latent.kv_rank, latent.nope_size}, kKind);
    list.matrix(attention + "v_b_proj.weight", {heads, latent.value_size, latent.kv_rank}, kKind);
  } else {
    list.product(attention + "kv_b_proj.weight", heads * (latent.nope_size + latent.value_size),
                 latent.kv_rank, kKind);
  }
  list.product(attention + "o_proj.weight", hidden, heads * latent.value_size, kKind);
  if (latent.q_rank == 0) {
    return list.product(attention + "q_proj.weight", config.q_size(), hidden, kKind);
  }
  list.vector(attention + "q_a_layernorm.weight", {latent.q_rank}, kKind);
  list.product(attention + "q_a_proj.weight", latent.q_rank, hidden, kKind);
  list.product(attention + "q_b_proj.weight", config.q_size(), latent.q_rank, kKind);
}

void add_attention(List& list, const ModelConfig& config, const std::string& attention) {
  if (config.is_latent()) return add_latent_attention(list, config, attention);
  const int64_t hidden = config.hidden_size;
  if (config.attn_out_bias) {
    list.vector(attention + "o_proj.bias", {hidden}, TensorKind::kAttention);
  }
  list.product(attention + "o_proj.weight", hidden, config.q_size(), TensorKind::kAttention);
  add_queries_keys_values(list, config, attention);
  if (config.attention_sinks) {
    list.vector(attention + "sinks", {config.head_count}, TensorKind::kAttention);
  }
  if (config.qk_norm) {
    list.vector(attention + "q_norm.weight", {config.head_size}, TensorKind::kAttention);
    list.vector(attention + "k_norm.weight", {config.head_size}, TensorKind::kAttention);
  }
}

void add_feed_forward(List& list, const ModelConfig& config, bool has_experts,
                      const std::string& mlp) {
  const int64_t hidden = config.hidden_size;
  if (!has_experts) {
    if (config.mlp_bias) {
      list.vector(mlp + "down_proj.bias", {hidden}, TensorKind::kMlp);
      list.vector(mlp + "gate_proj.bias", {config.intermediate_size}, TensorKind::kMlp);
      list.vector(mlp + "up_proj.bias", {config.intermediate_size}, TensorKind::kMlp);
    }
    return list.mlp(mlp, config.intermediate_size, hidden, TensorKind::kMlp);
  }
  const int64_t experts = config.expert_count;
  if (config.expert_bias) list.vector(mlp + "router.bias", {experts}, TensorKind::kRouter);
  list.matrix(mlp + "router.weight", {experts, hidden}, TensorKind::kRouter);
  if (config.router.correction) {
    list.vector(mlp + "router.e_score_correction_bias", {experts}, TensorKind::kRouter);
  }
  const int64_t inner = config.expert_intermediate_size;
  list.experts(mlp, experts, inner, hidden);
  if (config.shared_expert_count > 0) {
    list.mlp(mlp + "shared_experts.", config.shared_expert_count * inner, hidden, TensorKind::kMlp);
  }
}

void add_layer(List& list, const ModelConfig& config, int index) {
  const std::string layer = "model.layers." + std::to_string(index) + ".";
  list.vector(layer + "input_layernorm.weight", {config.hidden_size}, TensorKind::kNorms);
  add_attention(list, config, layer + "self_attn.");
  add_feed_forward(list, config, config.layers[static_cast<size_t>(index)].has_experts,
                   layer + "mlp.");
  list.vector(layer + "post_attention_layernorm.weight", {config.hidden_size}, TensorKind::kNorms);
  if (config.post_norms) {
    for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      list.vector(layer + norm + ".weight", {config.hidden_size}, TensorKind::kNorms);
    }
  }
}

void add_layer_norm(List& list, const std::string& name, int64_t hidden) {
  list.vector(name + ".bias", {hidden}, TensorKind::kNorms);
  list.vector(name + ".weight", {hidden}, TensorKind::kNorms);
}

void add_biased(List& list, const std::string& name, int64_t rows, int64_t columns,
                TensorKind kind) {
  list.vector(name + ".bias", {rows}, kind);
  list.matrix(name + ".weight", {rows, columns}, kind);
}

void add_encoder_layer(List& list, const ModelConfig& config, int index) {
  const std::string layer = "model.layers." + std::to_string(index) + ".";
  const int64_t hidden = config.hidden_size;
  for (const char* product : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    add_biased(list, layer + "self_attn." + product, hidden, hidden, TensorKind::kAttention);
  }
  add_layer_norm(list, layer + "post_attention_layernorm", hidden);
  add_biased(list, layer + "mlp.up_proj", config.intermediate_size, hidden, TensorKind::kMlp);
  add_biased(list, layer + "mlp.down_proj", hidden, config.intermediate_size, TensorKind::kMlp);
  add_layer_norm(list, layer + "post_feedforward_layernorm", hidden);
}

std::vector<ExpectedTensor> encoder_tensors(List& list, const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  for (int i = 0; i < config.layer_count(); ++i) add_encoder_layer(list, config, i);
  list.matrix("model.embed_tokens.weight", {config.vocab_size, hidden}, TensorKind::kEmbedding);
  list.matrix("model.embed_positions.weight", {config.encoder.position_rows, hidden},
              TensorKind::kEmbedding);
  list.matrix("model.embed_types.weight", {config.encoder.type_rows, hidden},
              TensorKind::kEmbedding);
  add_layer_norm(list, "model.embed_norm", hidden);
  if (config.label_count > 0) {
    add_biased(list, "classifier.dense", hidden, hidden, TensorKind::kHead);
    add_biased(list, "classifier.out_proj", config.label_count, hidden, TensorKind::kHead);
  }
  return list.take();
}

}  // namespace

bool ExpectedTensor::allows(DType type) const {
  const bool plain = type == DType::kF32 || type == DType::kF16 || type == DType::kBf16;
  switch (allowed) {
    case AllowedTypes::kExact:
      return type == dtype;
    case AllowedTypes::kVector:
      return plain;
    case AllowedTypes::kMatrix:
      return plain || type == DType::kQ8_0 || type == DType::kInt8Tiles ||
             tensor::is_ggml_block_type(type);
    case AllowedTypes::kExperts:
      return plain || type == DType::kQ8_0 || type == DType::kMxfp4 ||
             tensor::is_ggml_block_type(type);
    case AllowedTypes::kTiledExperts:
      return type == DType::kMxfp4Tiles;
  }
  return false;
}

int64_t ExpectedTensor::bytes() const {
  const int64_t columns = shape.back();
  if (columns == 0) return 0;  // sizes that do not divide; no file has such a tensor
  return product(shape) / columns * tensor::row_bytes(dtype, columns);
}

int64_t ExpectedTensor::parameters() const {
  if (is_scales) return 0;
  return product(shape) * numbers * (dtype == DType::kU8 ? 2 : 1);
}

DType int_weight_type(const ModelConfig& config) {
  const IntWeights& weights = config.int_weights;
  return weights.bits == 4 && weights.symmetric ? DType::kQ4_0 : DType::kQ8_0;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config, WeightLayout layout) {
  std::vector<std::string> layers;
  for (int i = 0; i < config.layer_count(); ++i) layers.push_back(std::to_string(i));
  std::sort(layers.begin(), layers.end());
  List list(config, layout);
  if (config.is_encoder()) return encoder_tensors(list, config);
  for (const std::string& layer : layers) add_layer(list, config, std::stoi(layer));
  const int64_t hidden = config.hidden_size;
  const int64_t vocab = config.vocab_size;
  list.matrix("model.embed_tokens.weight", {vocab, hidden}, TensorKind::kEmbedding);
  list.vector("model.norm.weight", {hidden}, TensorKind::kNorms);
  if (!config.tied_head) list.matrix("lm_head.weight", {vocab, hidden}, TensorKind::kHead);
  if (config.label_count > 0) {
    list.matrix("score.weight", {config.label_count, hidden}, TensorKind::kHead);
  }
  return list.take();
}

ExpectedTensor coarse_head_tensor(const ModelConfig& config) {
  return {std::string(kCoarseHead),
          DType::kInt4Tiles,
          {config.vocab_size, config.hidden_size},
          TensorKind::kHead,
          true};
}

}  // namespace pelton::families
