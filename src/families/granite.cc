// Granite 3 (2B, 8B): a Llama whose embeddings, scores, what blocks add, and logits are multiplied
// with numbers of its configuration; the head is tied to the embedding. Source: transformers'
// models/granite/modular_granite.py, configuration_granite.py and a published config.json.
#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

constexpr double kMultiplierMax = 1e6;

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY_ASSIGN(config.mlp_bias, fields.boolean("mlp_bias", false));
  TRY(read_attention_bias(fields, config));
  // Each is 1 where a file leaves it out, the scores', too.
  const auto multiplier = [&](std::string_view key) {
    return fields.number(key, 1.0, 1e-6, kMultiplierMax);
  };
  TRY_ASSIGN(config.embedding_scale, multiplier("embedding_multiplier"));
  TRY_ASSIGN(config.attention_scale, multiplier("attention_multiplier"));
  TRY_ASSIGN(config.residual_scale, multiplier("residual_multiplier"));
  TRY_ASSIGN(const double divisor, multiplier("logits_scaling"));
  config.logit_scale = 1.0 / divisor;
  return {};
}

constexpr NamePair kGgufReals[] = {{"embedding_scale", "embedding_multiplier"},
                                   {"attention.scale", "attention_multiplier"},
                                   {"residual_scale", "residual_multiplier"},
                                   {"logit_scale", "logits_scaling"}};

constexpr GgufNames kGguf{.architecture = "granite",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .reals = kGgufReals,
                          .turns_neighbours = true};

Json granite_3_3_8b() {
  Json config = published_decoder(
      {"GraniteForCausalLM", "granite", 40, 4096, 32, 8, 12800, 49159, 131072, 1e7, 1e-05, true});
  config.set("attention_bias", false).set("mlp_bias", false).set("rope_scaling", nullptr);
  config.set("embedding_multiplier", 12.0).set("attention_multiplier", 0.0078125);
  config.set("residual_multiplier", 0.22).set("logits_scaling", 16.0);
  config.set("bos_token_id", 0).set("eos_token_id", 0).set("pad_token_id", 0);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"granite-3.3-8b", granite_3_3_8b}};

}  // namespace

extern const Family kGranite{.architecture = "GraniteForCausalLM",
                             .model_type = "granite",
                             .read = read,
                             .gguf = &kGguf,
                             .published = kPublished};

}  // namespace pelton::families
