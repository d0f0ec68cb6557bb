#include "families/gpt_oss_original.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "families/gpt_oss.h"

namespace pelton::families {
namespace {

constexpr NamePair kGlobalNames[] = {
    {"embedding.weight", "model.embed_tokens.weight"},
    {"norm.scale", "model.norm.weight"},
    {"unembedding.weight", "lm_head.weight"},
};

constexpr NamePair kLayerNames[] = {
    {"attn.norm.scale", "input_layernorm.weight"},
    {"attn.out.bias", "self_attn.o_proj.bias"},
    {"attn.out.weight", "self_attn.o_proj.weight"},
    {"attn.sinks", "self_attn.sinks"},
    {"mlp.gate.bias", "mlp.router.bias"},
    {"mlp.gate.weight", "mlp.router.weight"},
    {"mlp.mlp1_bias", "mlp.experts.gate_up_proj_bias"},
    {"mlp.mlp1_weight.blocks", "mlp.experts.gate_up_proj_blocks"},
    {"mlp.mlp1_weight.scales", "mlp.experts.gate_up_proj_scales"},
    {"mlp.mlp2_bias", "mlp.experts.down_proj_bias"},
    {"mlp.mlp2_weight.blocks", "mlp.experts.down_proj_blocks"},
    {"mlp.mlp2_weight.scales", "mlp.experts.down_proj_scales"},
    {"mlp.norm.scale", "post_attention_layernorm.weight"},
};

constexpr std::string_view kFused[] = {"attn.qkv.bias", "attn.qkv.weight"};

}  // namespace

bool is_original_config(const Json& config) {
  return config.is_object() && config.find("architectures") == nullptr &&
         config.find("model_type") == nullptr && config.find("num_experts") != nullptr;
}

Json config_from_original(const Json& config) {
  Json out;
  out.set("architectures", Json::Array{"GptOssForCausalLM"}).set("model_type", "gpt_oss");
  Json quantization;
  out.set("quantization_config", quantization.set("quant_method", "mxfp4"));
  Json rope;
  rope.set("rope_type", "yarn").set("truncate", false);
  rope.set("factor", 32.0).set("beta_slow", 1.0).set("beta_fast", 32.0);
  rope.set("original_max_position_embeddings", 4096);
  double factor = 32.0;
  double original_context = 4096.0;
  for (const Json::Member& member : config.as_object()) {
    if (member.key == "rope_scaling_factor") {
      rope.set("factor", member.value);
      factor = member.value.is_number() ? member.value.as_number() : factor;
    } else if (member.key == "rope_ntk_alpha") {
      rope.set("beta_slow", member.value);
    } else if (member.key == "rope_ntk_beta") {
      rope.set("beta_fast", member.value);
    } else if (member.key == "initial_context_length") {
      rope.set("original_max_position_embeddings", member.value);
      original_context = member.value.is_number() ? member.value.as_number() : original_context;
    } else {
      out.set(member.key, member.value);
    }
  }
  // The file does not say how long a context may be: as far as YaRN stretches, 131072 as published.
  const double stretched = std::clamp(original_context * factor, 1.0, 16777216.0);
  out.set("max_position_embeddings", static_cast<int64_t>(stretched));
  out.set("rope_scaling", std::move(rope));
  return out;
}

Json config_to_original(const Json& config) {
  Json out;
  constexpr NamePair kKeys[] = {
      {"num_hidden_layers", "num_hidden_layers"},
      {"num_experts", "num_local_experts"},
      {"experts_per_token", "num_experts_per_tok"},
      {"vocab_size", "vocab_size"},
      {"hidden_size", "hidden_size"},
      {"intermediate_size", "intermediate_size"},
      {"swiglu_limit", "swiglu_limit"},
      {"head_dim", "head_dim"},
      {"num_attention_heads", "num_attention_heads"},
      {"num_key_value_heads", "num_key_value_heads"},
      {"sliding_window", "sliding_window"},
      {"rope_theta", "rope_theta"},
  };
  for (const auto& [original, key] : kKeys) {
    if (const Json* value = config.find(key); value != nullptr) out.set(original, *value);
  }
  if (const Json* rope = config.find("rope_scaling"); rope != nullptr && rope->is_object()) {
    constexpr NamePair kRope[] = {
        {"initial_context_length", "original_max_position_embeddings"},
        {"rope_scaling_factor", "factor"},
        {"rope_ntk_alpha", "beta_slow"},
        {"rope_ntk_beta", "beta_fast"},
    };
    for (const auto& [original, key] : kRope) {
      if (const Json* value = rope->find(key); value != nullptr) out.set(original, *value);
    }
  }
  return out;
}

std::vector<RowPart> parts_of_original(std::string_view name, const ModelConfig& config) {
  for (const auto& [original, ours] : kGlobalNames) {
    if (original == name) return {{std::string(ours), 0}};
  }
  constexpr std::string_view kPrefix = "block.";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || digits > 6 || name[digits] != '.') {
    return {};
  }
  const std::string layer = fmt::format("model.layers.{}.", name.substr(0, digits));
  const std::string_view rest = name.substr(digits + 1);
  for (const auto& [original, ours] : kLayerNames) {
    if (original == rest) return {{layer + std::string(ours), 0}};
  }
  for (const std::string_view fused : kFused) {
    if (fused != rest) continue;
    const std::string kind(fused.substr(fused.rfind('.')));
    const int64_t q = int64_t{config.head_count} * config.head_size;
    const int64_t kv = int64_t{config.kv_head_count} * config.head_size;
    return {{layer + "self_attn.q_proj" + kind, q},
            {layer + "self_attn.k_proj" + kind, kv},
            {layer + "self_attn.v_proj" + kind, kv}};
  }
  return {};
}

bool has_original_layout(const ModelConfig& config) {
  return config.family == &kGptOss;
}

std::vector<std::string> original_names(const ModelConfig& config) {
  std::vector<std::string> layers;
  for (int i = 0; i < config.layer_count(); ++i) layers.push_back(std::to_string(i));
  std::sort(layers.begin(), layers.end());
  std::vector<std::string> names;
  for (const std::string& layer : layers) {
    const std::string prefix = "block." + layer + ".";
    for (const std::string_view fused : kFused) names.push_back(prefix + std::string(fused));
    for (const NamePair& pair : kLayerNames) names.push_back(prefix + std::string(pair.foreign));
  }
  for (const NamePair& pair : kGlobalNames) names.emplace_back(pair.foreign);
  return names;
}

}  // namespace pelton::families
