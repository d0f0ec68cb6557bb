#include "families/mistral.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("attention_bias", Json(false)));
  TRY(read_decoder(fields, config));
  for (LayerConfig& layer : config.layers) layer.attention = AttentionKind::kSliding;
  TRY(read_layer_types(fields, config));
  return read_sliding_window(fields, config);
}

constexpr FamilyAlias kAliases[] = {{"Mistral3ForConditionalGeneration", "mistral3"}};

}  // namespace

// GGUF files say architecture "llama", and are read as Llama's.
const Family kMistral{.architecture = "MistralForCausalLM",
                      .model_type = "mistral",
                      .read = read,
                      .aliases = kAliases};

}  // namespace pelton::families
