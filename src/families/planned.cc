// Families whose bytes and operations are counted: those that this engine computes, as their own
// files read them, and others that it does not: what is made like Llama.
#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "families/registry.h"

namespace pelton::families {
namespace {

// Far beyond every model there is; products of four of them and a batch stay within 63 bits.
constexpr double kParametersMax = 1e15;

bool is_planned(std::string_view type) {
  const std::span<const std::string_view> types = planned_types();
  return std::find(types.begin(), types.end(), type) != types.end();
}

double bits_of(const std::string& method, const Json& quantization) {
  if (method == "mxfp4") return 4.25;  // 32 elements of 4 bits and a scale of 8
  if (method == "fp8") return 8;
  if (method == "awq" || method == "gptq") {
    return quantization.number("bits").value_or(4) + 0.125;  // a float16 scale for 128
  }
  return 16;
}

void read_bits(const Json& json, ModelConfig& config) {
  config.other_bits = json.string("torch_dtype").value_or("bfloat16") == "float32" ? 32 : 16;
  config.expert_bits = config.other_bits;
  const Json* const quantization = json.find("quantization_config");
  if (quantization == nullptr || quantization->is_null()) return;
  const std::string method = quantization->string("quant_method").value_or("");
  config.expert_bits = std::clamp(bits_of(method, *quantization), 1.0, 32.0);
  // MXFP4 leaves everything but the experts alone; the others spare embedding and head at most.
  if (method != "mxfp4") config.other_bits = config.expert_bits;
}

Result<void> read_any_experts(const ConfigFields& fields, ModelConfig& config) {
  constexpr ConfigFields::Range kCounts{0, kExpertsMax};
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (config.expert_count > 0) break;
    TRY_ASSIGN(config.expert_count, fields.integer_or(key, 0, kCounts));
  }
  TRY_ASSIGN(config.intermediate_size,
             fields.integer_or("intermediate_size", 0, {0, kIntermediateMax}));
  if (config.expert_count == 0) return {};
  TRY_ASSIGN(
      config.expert_intermediate_size,
      fields.integer_or("moe_intermediate_size", config.intermediate_size, {0, kIntermediateMax}));
  TRY_ASSIGN(config.experts_per_token,
             fields.integer("num_experts_per_tok", {1, config.expert_count}));
  TRY_ASSIGN(config.shared_expert_count, fields.integer_or("n_shared_experts", 0, kCounts));
  TRY_ASSIGN(const int dense_first, fields.integer_or("first_k_dense_replace", 0, {0, kLayersMax}));
  for (size_t i = static_cast<size_t>(dense_first); i < config.layers.size(); ++i) {
    config.layers[i].has_experts = true;
  }
  return {};
}

// In doubles, before anything is multiplied in whole numbers.
double roughly(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  const double attention =
      (double{1.0} * config.hidden_size + latent.q_rank + latent.kv_rank) * config.head_count *
      (double{1.0} * config.head_size + latent.nope_size + latent.rope_size + latent.value_size);
  const double inner =
      config.intermediate_size + (double{1.0} * config.expert_count + config.shared_expert_count) *
                                     (double{1.0} * config.expert_intermediate_size + 1);
  return 4.0 * config.layer_count() * (attention + config.hidden_size * inner) +
         2.0 * config.vocab_size * config.hidden_size;
}

Result<void> read(const ConfigFields& fields, const Json& json, ModelConfig& config) {
  const std::string& type = config.model_type;
  TRY(read_sizes(fields, config));
  TRY(read_any_experts(fields, config));
  TRY(read_layer_types(fields, config));
  TRY_ASSIGN(config.sliding_window, fields.integer_or("sliding_window", 0, {0, kContextMax}));
  if (config.count(AttentionKind::kSliding) > 0 && config.sliding_window < 1) {
    return fields.bad("sliding_window", "must be at least 1 where layers slide");
  }
  TRY_ASSIGN(config.tied_head, fields.boolean("tie_word_embeddings", false));
  TRY_ASSIGN(config.attn_out_bias, fields.boolean("attention_bias", false));
  config.qkv_bias = config.attn_out_bias || type.starts_with("qwen2");
  read_bits(json, config);
  return {};
}

const Family* computed_family(std::string_view type) {
  for (const Family* family : Registry::built_in().families()) {
    if (family->model_type == type) return family;
    for (const FamilyAlias& alias : family->aliases) {
      if (alias.model_type == type && alias.architecture == family->architecture) return family;
    }
  }
  return nullptr;
}

// By model_type alone, whatever stands on its layers; and with weights that are packed in ways that
// are counted and not read.
Result<ModelConfig> read_computed(const Family& family, Json json, const std::string& file) {
  const Json whole = json;
  const Json* const quantization = whole.find("quantization_config");
  const bool is_packed = quantization != nullptr && quantization->is_object() &&
                         quantization->string("quant_method").value_or("") != "mxfp4";
  if (is_packed) json.set("quantization_config", nullptr);
  json.set("architectures", Json::Array{family.architecture});
  TRY_ASSIGN(ModelConfig config, parse_model_config(json, nullptr, file));
  read_bits(whole, config);
  return config;
}

std::string countable_types() {
  std::vector<std::string_view> types;
  for (const Family* family : Registry::built_in().families()) types.push_back(family->model_type);
  types.insert(types.end(), planned_types().begin(), planned_types().end());
  return fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace

Result<ModelConfig> parse_planned_config(const Json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  ModelConfig config{.name = file};
  config.model_type = json.string("model_type").value_or("");
  if (const Family* family = computed_family(config.model_type)) {
    TRY_ASSIGN(config, read_computed(*family, json, file));
    // Experts that the family does not have (mixtures of its models, under its name) are counted.
    if (!config.has_experts()) TRY(read_any_experts(fields, config));
  } else if (is_planned(config.model_type)) {
    TRY(read(fields, json, config));
  } else {
    return fields.unsupported(
        "model_type", fmt::format("'{}' is none whose bytes we can count ({})", config.model_type,
                                  countable_types()));
  }
  if (roughly(config) > kParametersMax) {
    return fields.bad("hidden_size", "and the other sizes make more than 1e15 parameters");
  }
  config.nominal_parameters = std::max<int64_t>(json.integer("nominal_parameters").value_or(0), 0);
  return config;
}

}  // namespace pelton::families
