// Qwen 2 and 2.5: Llama with biases on queries, keys and values; some files let upper layers slide.
#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY(read_upper_window(fields, config));
  config.qkv_bias = true;  // whatever a key says: the published code asks none
  fields.find("attention_bias");
  return {};
}

constexpr GgufNames kGguf{.architecture = "qwen2",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .rope_theta = 1e6};

Json qwen2_5() {
  Json config = published_decoder(
      {"Qwen2ForCausalLM", "qwen2", 24, 896, 14, 2, 4864, 151936, 32768, 1e6, 1e-06, true});
  config.set("sliding_window", 32768);
  add_qwen_keys(config, 21);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"qwen2.5-0.5b", qwen2_5}};

}  // namespace

extern const Family kQwen2{.architecture = "Qwen2ForCausalLM",
                           .model_type = "qwen2",
                           .read = read,
                           .gguf = &kGguf,
                           .published = kPublished};

}  // namespace pelton::families
