// Qwen3, dense (0.6B to 32B): full attention with an RMS norm over each head of queries and keys,
// no biases, SwiGLU; small ones tie the head to the embedding. Source: transformers'
// models/qwen3/modeling_qwen3.py and the published config.json files.
#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY(fields.only("use_qk_norm", Json(true)));  // as its layers have it
  TRY(read_attention_bias(fields, config));
  TRY(read_upper_window(fields, config));
  config.qk_norm = true;
  return {};
}

constexpr GgufNames kGguf{.architecture = "qwen3",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .rope_theta = 1e6};

Json qwen3_0_6b() {
  Json config = published_decoder(
      {"Qwen3ForCausalLM", "qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, 1e6, 1e-06, true});
  config.set("attention_bias", false).set("head_dim", 128).set("sliding_window", nullptr);
  add_qwen_keys(config, 28);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"qwen3-0.6b", qwen3_0_6b}};

}  // namespace

extern const Family kQwen3{.architecture = "Qwen3ForCausalLM",
                           .model_type = "qwen3",
                           .read = read,
                           .gguf = &kGguf,
                           .published = kPublished};

}  // namespace pelton::families
