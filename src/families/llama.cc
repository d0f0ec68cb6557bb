#include "families/llama.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("mlp_bias", Json(false)));
  TRY(fields.only("hidden_act", Json("silu")));
  if (fields.find("quantization_config") != nullptr) {
    return fields.unsupported("quantization_config",
                              "is there; supported: weights in bf16, float16 or float32");
  }
  TRY(read_sizes(fields, config));
  TRY_ASSIGN(config.intermediate_size, fields.integer("intermediate_size", {1, kIntermediateMax}));
  TRY(read_rope(fields, config));
  TRY_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-6, 0.0, 1.0));
  TRY_ASSIGN(config.tied_head, fields.boolean("tie_word_embeddings", false));
  // One key for all four products of attention.
  TRY_ASSIGN(config.qkv_bias, fields.boolean("attention_bias", false));
  config.attn_out_bias = config.qkv_bias;
  return {};
}

}  // namespace

// GGUF files of architecture "llama" have the rows of q and k in another order (neighbours are
// turned together), which nothing here undoes.
const Family kLlama{
    .architecture = "LlamaForCausalLM", .model_type = "llama", .read = read, .gguf = nullptr};

}  // namespace pelton::families
