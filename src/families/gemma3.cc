// Gemma 3, text: norms that multiply with 1 + w, four in each layer; embeddings times the root of
// the hidden size; GELU; five sliding layers to one that keeps every token, each kind with its own
// rotation. Source: transformers' models/gemma3/modular_gemma3.py.
#include <cmath>
#include <utility>

#include "families/family.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

// transformers' Gemma3TextConfig; files of wrapped models say hardly more than what differs.
constexpr std::string_view kDefaults = R"({
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2304,
  "intermediate_size": 9216, "num_hidden_layers": 26, "vocab_size": 262208,
  "max_position_embeddings": 131072, "rope_theta": 1000000.0, "sliding_window": 4096})";

// Layer i slides unless i + 1 is a multiple of the pattern, or as layer_types says.
Result<void> read_pattern(const ConfigFields& fields, ModelConfig& config) {
  // transformers from 4.53 on writes it with an underscore, beside layer_types.
  TRY_ASSIGN(const int newer, fields.integer_or("_sliding_window_pattern", 6, {1, kLayersMax}));
  TRY_ASSIGN(const int pattern,
             fields.integer_or("sliding_window_pattern", newer, {1, kLayersMax}));
  for (int i = 0; i < config.layer_count(); ++i) {
    config.layers[static_cast<size_t>(i)].attention =
        (i + 1) % pattern != 0 ? AttentionKind::kSliding : AttentionKind::kFull;
  }
  TRY(read_layer_types(fields, config));
  return read_sliding_window(fields, config);
}

// Sliding layers: unscaled, with a base of their own. transformers 5 has both under
// rope_parameters, by the kind of layer.
Result<void> read_ropes(const ConfigFields& fields, ModelConfig& config) {
  RopeConfig sliding;
  const Json* both = fields.find("rope_parameters");
  const Json* full = both != nullptr ? both->find("full_attention") : nullptr;
  const Json* local = both != nullptr ? both->find("sliding_attention") : nullptr;
  TRY_ASSIGN(sliding.theta, fields.number("rope_local_base_freq", 10000.0, 1.0 + 1e-6, 1e12));
  if (full != nullptr && local != nullptr && full->is_object() && local->is_object()) {
    const ConfigFields inner = fields.inner(*both, "rope_parameters");
    TRY_ASSIGN(config.rope.theta, fields.number("rope_theta", 1e6, 1.0 + 1e-6, 1e12));
    TRY(read_rope_scaling(inner.inner(*full, "full_attention"), config.context_max, config.rope));
    TRY(read_rope_scaling(inner.inner(*local, "sliding_attention"), config.context_max, sliding));
  } else if (full != nullptr || local != nullptr) {
    return fields.bad("rope_parameters", "must have both full_attention and sliding_attention");
  } else {
    TRY(read_rope(fields, config));
  }
  config.sliding_rope = sliding;
  return {};
}

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_attention_bias(fields, config));
  TRY(fields.only("hidden_activation", Json("gelu_pytorch_tanh")));
  TRY(fields.only("hidden_act", Json("gelu_pytorch_tanh")));
  TRY(fields.only("use_bidirectional_attention", Json(false)));
  TRY(read_quantization(fields, config));
  TRY(read_sizes(fields, config));
  TRY_ASSIGN(config.intermediate_size, fields.integer("intermediate_size", {1, kIntermediateMax}));
  TRY(read_pattern(fields, config));
  TRY(read_ropes(fields, config));
  TRY_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-6, 0.0, 1.0));
  TRY_ASSIGN(config.tied_head, fields.boolean("tie_word_embeddings", true));
  TRY_ASSIGN(const double scalar, fields.number("query_pre_attn_scalar", 256.0, 1e-3, 1e6));
  TRY_ASSIGN(config.attention_softcap, fields.number("attn_logit_softcapping", 0.0, 0.0, 1e6));
  TRY_ASSIGN(config.logit_softcap, fields.number("final_logit_softcapping", 0.0, 0.0, 1e6));
  config.attention_scale = 1.0 / std::sqrt(scalar);
  // Not rounded to bf16, as the published code does where it computes in bf16.
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.norm_adds_one = config.post_norms = config.qk_norm = true;
  config.glu = Glu::kGegluTanh;
  return {};
}

constexpr FamilyAlias kAliases[] = {{"Gemma3ForConditionalGeneration", "gemma3"}};

constexpr NamePair kGgufTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};

constexpr GgufInteger kGgufNumbers[] = {{"feed_forward_length", "intermediate_size", true},
                                        {"attention.sliding_window", "sliding_window", true}};

constexpr NamePair kGgufReals[] = {{"rope.freq_base_swa", "rope_local_base_freq"},
                                   {"attn_logit_softcapping", "attn_logit_softcapping"},
                                   {"final_logit_softcapping", "final_logit_softcapping"}};

// llama.cpp's rule: scores by the head size, but for the 27B model.
void complete(Json& config) {
  const auto integer = [&](const char* key) { return config.integer(key).value_or(0); };
  const int64_t head_size = config.integer("head_dim").value_or(256);
  const bool largest = integer("num_hidden_layers") == 62 && integer("num_attention_heads") > 0;
  config.set("query_pre_attn_scalar",
             largest ? integer("hidden_size") / integer("num_attention_heads") : head_size);
}

constexpr GgufNames kGguf{.architecture = "gemma3",
                          .layer = kGgufTensors,
                          .numbers = kGgufNumbers,
                          .reals = kGgufReals,
                          .complete = complete,
                          .rope_theta = 1e6};

Json gemma3_4b() {
  Json config = published_decoder({"Gemma3ForCausalLM", "gemma3_text", 34, 2560, 8, 4, 10240,
                                   262208, 131072, 1e6, 1e-06, true});
  Json rope;
  rope.set("factor", 8.0).set("rope_type", "linear");
  config.set("hidden_act", nullptr).set("hidden_activation", "gelu_pytorch_tanh");
  config.set("attention_bias", false).set("attn_logit_softcapping", nullptr);
  config.set("bos_token_id", 2).set("eos_token_id", Json::Array{1, 106}).set("head_dim", 256);
  config.set("final_logit_softcapping", nullptr).set("query_pre_attn_scalar", 256);
  config.set("rope_local_base_freq", 10000.0).set("rope_scaling", std::move(rope));
  config.set("sliding_window", 1024).set("sliding_window_pattern", 6);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"gemma-3-4b", gemma3_4b}};

}  // namespace

extern const Family kGemma3{.architecture = "Gemma3ForCausalLM",
                            .model_type = "gemma3_text",
                            .read = read,
                            .defaults = kDefaults,
                            .aliases = kAliases,
                            .gguf = &kGguf,
                            .published = kPublished};

}  // namespace pelton::families
