// Qwen 3 with experts: Qwen 3's attention; layers of experts, with dense ones between on request.
#include <algorithm>

#include <fmt/format.h>

#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

// Layer n has experts if n + 1 is a multiple of decoder_sparse_step and mlp_only_layers has no n.
Result<void> read_expert_layers(const ConfigFields& fields, ModelConfig& config) {
  TRY_ASSIGN(const int step, fields.integer_or("decoder_sparse_step", 1, {1, kLayersMax}));
  const Json* dense = fields.find("mlp_only_layers");
  if (dense != nullptr && !dense->is_array()) {
    return fields.bad("mlp_only_layers", "must be an array of layers, found " + shown(*dense));
  }
  for (size_t i = 0; dense != nullptr && i < dense->as_array().size(); ++i) {
    const Json& layer = dense->as_array()[i];
    if (layer.is_integer() && layer.as_integer() >= 0 &&
        layer.as_integer() < config.layer_count()) {
      continue;
    }
    return fields.bad(fmt::format("mlp_only_layers[{}]", i),
                      fmt::format("must be a layer, from 0 to {}, found {}",
                                  config.layer_count() - 1, shown(layer)));
  }
  const auto is_dense = [&](int layer) {
    if (dense == nullptr) return false;
    const Json::Array& list = dense->as_array();
    return std::find(list.begin(), list.end(), Json(layer)) != list.end();
  };
  for (int i = 0; i < config.layer_count(); ++i) {
    config.layers[static_cast<size_t>(i)].has_experts = (i + 1) % step == 0 && !is_dense(i);
  }
  return {};
}

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY(read_attention_bias(fields, config));
  TRY(read_experts(fields, "num_experts", "moe_intermediate_size", config));
  TRY(read_expert_layers(fields, config));
  TRY(read_upper_window(fields, config));
  TRY_ASSIGN(const bool normalises, fields.boolean("norm_topk_prob", false));
  config.router.kind = normalises ? RouterKind::kSoftmaxOfTopK : RouterKind::kSoftmax;
  config.qk_norm = true;
  if (config.expert_layers() == config.layer_count()) config.intermediate_size = 0;
  return {};
}

constexpr NamePair kLayerNames[] = {{"mlp.gate.weight", "mlp.router.weight"}};

constexpr GgufInteger kGgufNumbers[] = {
    {"feed_forward_length", "intermediate_size", true},
    {"expert_feed_forward_length", "moe_intermediate_size", true},
    {"expert_count", "num_experts", true},
    {"expert_used_count", "num_experts_per_tok", true},
};

// Every published model divides the chosen shares by their sum; the file does not say it.
constexpr GgufFlag kGgufFlags[] = {{"norm_topk_prob", true}};

constexpr GgufNames kGguf{.architecture = "qwen3moe",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufNumbers,
                          .flags = kGgufFlags,
                          .rope_theta = 1e6};

Json qwen3_30b_a3b() {
  Json config = published_decoder(
      {"Qwen3MoeForCausalLM", "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960, 1e6, 1e-06});
  config.set("attention_bias", false).set("head_dim", 128).set("sliding_window", nullptr);
  config.set("decoder_sparse_step", 1).set("mlp_only_layers", Json::Array{});
  config.set("moe_intermediate_size", 768).set("norm_topk_prob", true).set("num_experts", 128);
  config.set("num_experts_per_tok", 8).set("output_router_logits", false);
  add_qwen_keys(config, 48);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"qwen3-30b-a3b", qwen3_30b_a3b}};

}  // namespace

extern const Family kQwen3Moe{.architecture = "Qwen3MoeForCausalLM",
                              .model_type = "qwen3_moe",
                              .read = read,
                              .layer_names = kLayerNames,
                              .gguf = &kGguf,
                              .published = kPublished};

}  // namespace pelton::families
