#include "families/qwen3.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("attention_bias", Json(false)));
  TRY(fields.only("hidden_act", Json("silu")));
  // Its value counts only where this is true, which no published file says.
  TRY(fields.only("use_sliding_window", Json(false)));
  if (fields.find("quantization_config") != nullptr) {
    return fields.unsupported("quantization_config",
                              "is there; supported: weights in bf16, float16 or float32, or GGUF");
  }
  TRY(read_sizes(fields, config));
  TRY_ASSIGN(config.intermediate_size, fields.integer("intermediate_size", {1, kIntermediateMax}));
  TRY(read_rope(fields, config));
  TRY_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-6, 0.0, 1.0));
  TRY_ASSIGN(config.tied_head, fields.boolean("tie_word_embeddings", false));
  config.qk_norm = true;
  return {};
}

constexpr NamePair kGgufTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};

constexpr GgufInteger kGgufNumbers[] = {{"feed_forward_length", "intermediate_size", true}};

constexpr GgufNames kGguf{
    .architecture = "qwen3", .layer = kGgufTensors, .numbers = kGgufNumbers, .rope_theta = 1e6};

}  // namespace

const Family kQwen3{
    .architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .read = read, .gguf = &kGguf};

}  // namespace pelton::families
