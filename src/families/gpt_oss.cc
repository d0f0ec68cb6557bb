#include "families/gpt_oss.h"

#include <utility>

#include <fmt/format.h>

#include "families/published_config.h"
#include "families/unclamped_yarn.h"

namespace pelton::families {
namespace {

constexpr int64_t kMxfp4Block = 32;

// What the architecture would allow and the published models do not use: silence would compute
// nonsense.
Result<void> refuse_variants(const ConfigFields& fields) {
  TRY(fields.only("attention_bias", Json(true)));
  TRY(fields.only("tie_word_embeddings", Json(false)));
  TRY(fields.only("hidden_act", Json("silu")));
  TRY(fields.only("partial_rotary_factor", Json(1.0)));  // devices turn whole heads
  const Json* quantization = fields.find("quantization_config");
  if (quantization == nullptr) return {};  // bf16 experts, as re-uploads have them
  const std::string method = quantization->string("quant_method").value_or("");
  if (method != "mxfp4") {
    return fields.unsupported(
        "quantization_config",
        fmt::format("has quant_method {}; supported: \"mxfp4\" (experts as published)",
                    shown(Json(method))));
  }
  return fields.inner(*quantization, "quantization_config").only("group_size", Json(kMxfp4Block));
}

// An expert's weights come in MXFP4 blocks of 32 along both widths.
Result<void> check_blocks(const ConfigFields& fields, const ModelConfig& config) {
  for (const auto& [key, size] :
       {std::pair{"hidden_size", config.hidden_size},
        std::pair{"intermediate_size", config.expert_intermediate_size}}) {
    if (size % kMxfp4Block != 0) {
      return fields.bad(key, fmt::format("must be a multiple of 32, found {}", size));
    }
  }
  return {};
}

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(refuse_variants(fields));
  TRY(read_sizes(fields, config));
  for (const char* key : {"num_key_value_heads", "head_dim"}) {
    if (fields.find(key) == nullptr) return fields.bad(key, "is missing");
  }
  TRY_ASSIGN(config.expert_intermediate_size,
             fields.integer("intermediate_size", {kMxfp4Block, kIntermediateMax}));
  TRY_ASSIGN(config.expert_count,
             fields.integer_or_alias("num_local_experts", "num_experts", {1, kExpertsMax}));
  TRY_ASSIGN(config.experts_per_token,
             fields.integer_or_alias("num_experts_per_tok", "experts_per_token",
                                     {1, config.expert_count}));
  TRY(check_blocks(fields, config));
  TRY_ASSIGN(config.sliding_window, fields.integer("sliding_window", {1, kContextMax}));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const AttentionKind kind = i % 2 == 0 ? AttentionKind::kSliding : AttentionKind::kFull;
    config.layers[i] = {.attention = kind, .has_experts = true};
  }
  TRY(read_layer_types(fields, config));
  config.rope.theta = 150000.0;
  TRY_ASSIGN(config.rope.original_context, fields.number("initial_context_length", 4096.0, 1.0,
                                                         static_cast<double>(kContextMax)));
  TRY(read_rope(fields, config));
  leave_ramp_uncut(config.rope, config.head_size);
  TRY_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-5, 0.0, 1.0));
  TRY_ASSIGN(config.swiglu_limit, fields.number("swiglu_limit", 7.0, 1e-3, 1e6));
  TRY_ASSIGN(config.swiglu_alpha, fields.number("swiglu_alpha", 1.702, 1e-3, 1e3));
  config.glu = Glu::kClampedSwiglu;
  if (fields.find("quantization_config") != nullptr) config.expert_bits = 4.25;
  config.qkv_bias = config.attn_out_bias = config.expert_bias = true;
  config.attention_sinks = true;
  return {};
}

constexpr NamePair kGgufTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"ffn_gate_inp.bias", "mlp.router.bias"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_exps"},
    {"ffn_gate_exps.bias", "mlp.experts.gate_exps_bias"},
    {"ffn_up_exps.weight", "mlp.experts.up_exps"},
    {"ffn_up_exps.bias", "mlp.experts.up_exps_bias"},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_exps"},
    {"ffn_gate_up_exps.bias", "mlp.experts.gate_up_exps_bias"},
    {"ffn_down_exps.weight", "mlp.experts.down_exps"},
    {"ffn_down_exps.bias", "mlp.experts.down_exps_bias"},
};

constexpr GgufInteger kGgufNumbers[] = {
    {"expert_feed_forward_length", "intermediate_size", false},
    {"attention.sliding_window", "sliding_window", true},
    {"expert_count", "num_local_experts", true},
    {"expert_used_count", "num_experts_per_tok", true},
};

// What GGUF does not say is as published: YaRN over 4096 tokens, its ramp's bounds not rounded.
constexpr GgufNames kGguf{.architecture = "gpt-oss",
                          .layer = kGgufTensors,
                          .numbers = kGgufNumbers,
                          .rope_theta = 150000.0,
                          .yarn_truncate = false,
                          .yarn_factor = 32.0,
                          .yarn_original_context = 4096};

Json gpt_oss(bool large) {
  Json quantization;
  quantization.set("modules_to_not_convert",
                   Json::Array{"model.layers.*.self_attn", "model.layers.*.mlp.router",
                               "model.embed_tokens", "lm_head"});
  quantization.set("quant_method", "mxfp4");
  Json rope;
  rope.set("beta_fast", 32.0).set("beta_slow", 1.0).set("factor", 32.0);
  rope.set("original_max_position_embeddings", 4096).set("rope_type", "yarn");
  rope.set("truncate", false);

  Json config;
  config.set("architectures", Json::Array{"GptOssForCausalLM"});
  config.set("attention_bias", true).set("attention_dropout", 0.0);
  config.set("eos_token_id", 200002).set("experts_per_token", 4).set("head_dim", 64);
  config.set("hidden_act", "silu").set("hidden_size", 2880);
  config.set("initial_context_length", 4096).set("initializer_range", 0.02);
  config.set("intermediate_size", 2880).set("layer_types", Json::Array{});
  config.set("max_position_embeddings", 131072).set("model_type", "gpt_oss");
  config.set("num_attention_heads", 64).set("num_experts_per_tok", 4);
  config.set("num_hidden_layers", 0).set("num_key_value_heads", 8);
  config.set("num_local_experts", large ? 128 : 32).set("output_router_logits", false);
  config.set("pad_token_id", 199999).set("quantization_config", std::move(quantization));
  config.set("rms_norm_eps", 1e-05).set("rope_scaling", std::move(rope));
  config.set("rope_theta", 150000).set("router_aux_loss_coef", 0.9).set("sliding_window", 128);
  config.set("swiglu_limit", 7.0).set("tie_word_embeddings", false);
  config.set("transformers_version", "4.55.0.dev0").set("use_cache", true);
  config.set("vocab_size", 201088);
  set_layer_count(config, large ? 36 : 24);
  return config;
}

Json gpt_oss_20b() {
  return gpt_oss(false);
}
Json gpt_oss_120b() {
  return gpt_oss(true);
}
constexpr PublishedConfig kPublished[] = {{"gpt-oss-20b", gpt_oss_20b},
                                          {"gpt-oss-120b", gpt_oss_120b}};

}  // namespace

const Family kGptOss{.architecture = "GptOssForCausalLM",
                     .model_type = "gpt_oss",
                     .read = read,
                     .any_plain_type = false,
                     .expert_files = ExpertFiles::kMxfp4,
                     .gguf = &kGguf,
                     .published = kPublished};

}  // namespace pelton::families
