// Mistral: Llama's arithmetic, with a sliding window on every layer (7B v0.1) or none (later ones,
// whose files say null). Source: transformers' models/mistral.
#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

// Of files that do not say it: MistralConfig's.
constexpr int kWindowUnsaid = 4096;

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("attention_bias", Json(false)));
  TRY(read_decoder(fields, config));
  for (LayerConfig& layer : config.layers) layer.attention = AttentionKind::kSliding;
  TRY(read_layer_types(fields, config));
  return read_sliding_window(fields, config, kWindowUnsaid);
}

constexpr GgufInteger kGgufNumbers[] = {{"feed_forward_length", "intermediate_size", true},
                                        {"attention.sliding_window", "sliding_window"}};

// Llama's architecture. A file without a window is read as Llama's, which computes the same.
constexpr GgufNames kGguf{.architecture = "llama",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufNumbers,
                          .turns_neighbours = true,
                          .has_window = true};

constexpr FamilyAlias kAliases[] = {{"Mistral3ForConditionalGeneration", "mistral3"}};

Json mistral_7b() {
  Json config = published_decoder(
      {"MistralForCausalLM", "mistral", 32, 4096, 32, 8, 14336, 32768, 32768, 1e6, 1e-05});
  config.set("bos_token_id", 1).set("eos_token_id", 2).set("sliding_window", nullptr);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"mistral-7b-v0.3", mistral_7b}};

}  // namespace

extern const Family kMistral{.architecture = "MistralForCausalLM",
                             .model_type = "mistral",
                             .read = read,
                             .aliases = kAliases,
                             .gguf = &kGguf,
                             .published = kPublished};

}  // namespace pelton::families
