#include "families/llama.h"

#include "families/gguf_tables.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("mlp_bias", Json(false)));
  TRY(read_decoder(fields, config));
  // One key for all four products of attention.
  TRY_ASSIGN(config.qkv_bias, fields.boolean("attention_bias", false));
  config.attn_out_bias = config.qkv_bias;
  return {};
}

// Also of Mistral's models. Rows of q and k of each head come in neighbours' order, so neighbours
// are rotated together; rope_freqs.weight holds the divisors of the frequencies.
constexpr GgufNames kGguf{.architecture = "llama",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .turns_neighbours = true};

}  // namespace

const Family kLlama{
    .architecture = "LlamaForCausalLM", .model_type = "llama", .read = read, .gguf = &kGguf};

}  // namespace pelton::families
