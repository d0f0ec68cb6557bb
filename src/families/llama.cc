// Llama (3.x and before) and what others published in its class (SmolLM2, TinyLlama, Yi,
// R1-Distill-Llama): full attention without norms on queries and keys, no biases, SwiGLU, from 3.1
// on with frequencies scaled in bands; small ones tie the head to the embedding. Source:
// transformers' models/llama/modeling_llama.py and the published config.json files.
#include <utility>

#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY_ASSIGN(config.mlp_bias, fields.boolean("mlp_bias", false));
  return read_attention_bias(fields, config);
}

// Also of Mistral's models. Rows of q and k of each head come in neighbours' order, so neighbours
// are rotated together; rope_freqs.weight holds the divisors of the frequencies.
constexpr GgufNames kGguf{.architecture = "llama",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .turns_neighbours = true};

Json llama_3_1() {
  Json config = published_decoder(
      {"LlamaForCausalLM", "llama", 32, 4096, 32, 8, 14336, 128256, 131072, 500000.0, 1e-05});
  Json rope;
  rope.set("factor", 8.0).set("low_freq_factor", 1.0).set("high_freq_factor", 4.0);
  rope.set("original_max_position_embeddings", 8192).set("rope_type", "llama3");
  config.set("attention_bias", false).set("mlp_bias", false).set("rope_scaling", std::move(rope));
  config.set("bos_token_id", 128000).set("eos_token_id", Json::Array{128001, 128008, 128009});
  return config;
}

constexpr PublishedConfig kPublished[] = {{"llama-3.1-8b", llama_3_1}};

}  // namespace

extern const Family kLlama{.architecture = "LlamaForCausalLM",
                           .model_type = "llama",
                           .read = read,
                           .gguf = &kGguf,
                           .published = kPublished};

}  // namespace pelton::families
