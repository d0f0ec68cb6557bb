// DeepSeek V3 (also R1, V3.1, Kimi K2, Moonlight) and V2: latent attention (arXiv 2405.04434),
// neighbours rotated, many small experts in groups beside shared ones, dense layers ahead of them.
// Sources: deepseek-ai/DeepSeek-V3 inference/model.py; transformers' models/deepseek_v2,
// deepseek_v3.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "families/family.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

Result<void> read_latent(const ConfigFields& fields, ModelConfig& config) {
  constexpr ConfigFields::Range kRanks{1, kHiddenMax};
  constexpr ConfigFields::Range kSizes{1, kHeadSizeMax};
  LatentConfig& latent = config.latent;
  TRY_ASSIGN(latent.q_rank, fields.integer_or("q_lora_rank", 0, kRanks));
  TRY_ASSIGN(latent.kv_rank, fields.integer("kv_lora_rank", kRanks));
  TRY_ASSIGN(latent.nope_size, fields.integer("qk_nope_head_dim", kSizes));
  TRY_ASSIGN(latent.rope_size, fields.integer("qk_rope_head_dim", kSizes));
  TRY_ASSIGN(latent.value_size, fields.integer("v_head_dim", kSizes));
  if (latent.rope_size % 2 != 0) {
    return fields.bad("qk_rope_head_dim", fmt::format("must be even, found {}", latent.rope_size));
  }
  latent.keys_transposed = fields.find("key_length_mla") != nullptr;
  fields.find("head_dim");  // hidden_size / num_attention_heads, or qk_rope_head_dim: means nothing
  config.head_size = latent.nope_size + latent.rope_size;
  config.rope.pairs = RopePairs::kNeighbours;
  return {};
}

// Behind read_latent and read_decoder.
void grow_scores(ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.scaling != RopeScaling::kYarn || rope.factor <= 1.0 || rope.mscale_all_dim <= 0) return;
  const double grown = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  config.attention_scale *= grown * grown;
}

Result<void> read_groups(const ConfigFields& fields, ModelConfig& config) {
  RouterConfig& router = config.router;
  TRY_ASSIGN(router.groups, fields.integer_or("n_group", 1, {1, config.expert_count}));
  TRY_ASSIGN(router.groups_kept, fields.integer_or("topk_group", 1, {1, router.groups}));
  if (router.groups > 1) TRY(fields.only("use_grouped_topk", Json(true)));
  fields.find("use_grouped_topk");  // of one group it says nothing
  if (config.expert_count % router.groups != 0) {
    return fields.bad("n_group", fmt::format("({}) must divide n_routed_experts ({})",
                                             router.groups, config.expert_count));
  }
  if (config.experts_per_token > config.expert_count / router.groups * router.groups_kept) {
    return fields.bad("num_experts_per_tok",
                      fmt::format("({}) is more than {} groups of experts have",
                                  config.experts_per_token, router.groups_kept));
  }
  return {};
}

Result<void> read_mixture(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("moe_layer_freq", Json(1)));
  TRY(read_experts(fields, "n_routed_experts", "moe_intermediate_size", config));
  TRY_ASSIGN(config.shared_expert_count, fields.integer_or("n_shared_experts", 0, {0, 64}));
  TRY_ASSIGN(const int dense, fields.integer_or("first_k_dense_replace", 0, {0, kLayersMax}));
  for (int i = dense; i < config.layer_count(); ++i) {
    config.layers[static_cast<size_t>(i)].has_experts = true;
  }
  RouterConfig& router = config.router;
  TRY_ASSIGN(router.normalises, fields.boolean("norm_topk_prob", false));
  TRY_ASSIGN(router.scale, fields.number("routed_scaling_factor", 1.0, 1e-6, 1e6));
  TRY(read_groups(fields, config));
  TRY_ASSIGN(config.draft_layer_count,
             fields.integer_or("num_nextn_predict_layers", 0, {0, kLayersMax}));
  return {};
}

Result<void> read_common(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("attention_bias", Json(false)));
  TRY(fields.only("rope_interleave", Json(true)));
  TRY(read_latent(fields, config));
  TRY(read_decoder(fields, config));
  if (config.rotary_part != 0) {
    return fields.unsupported("partial_rotary_factor",
                              "is not 1; supported: 1, as qk_rope_head_dim is what is rotated");
  }
  for (LayerConfig& layer : config.layers) layer.attention = AttentionKind::kLatent;
  grow_scores(config);
  return read_mixture(fields, config);
}

Result<void> read_v3(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_common(fields, config));
  TRY(fields.only("scoring_func", Json("sigmoid")));
  TRY(fields.only("topk_method", Json("noaux_tc")));
  config.router.kind = RouterKind::kSigmoid;
  config.router.correction = config.router.group_by_two = true;
  return {};
}

Result<void> read_v2(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_common(fields, config));
  TRY(fields.only("scoring_func", Json("softmax")));
  const Json* method = fields.find("topk_method");
  if (method == nullptr || *method == Json("greedy")) {
    config.router.groups = config.router.groups_kept = 1;
  } else {
    TRY(fields.only("topk_method", Json("group_limited_greedy")));
  }
  // The published code scales what it does not normalise.
  if (config.router.normalises && config.router.scale != 1.0) {
    return fields.unsupported("norm_topk_prob",
                              "is true with a routed_scaling_factor; supported: one of the two");
  }
  config.router.kind = RouterKind::kSoftmax;
  return {};
}

constexpr NamePair kLayerNames[] = {
    {"mlp.gate.weight", "mlp.router.weight"},
    {"mlp.gate.e_score_correction_bias", "mlp.router.e_score_correction_bias"},
};

constexpr NamePair kGgufTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attn_k_b.weight", "self_attn.k_b_proj.weight"},
    {"attn_v_b.weight", "self_attn.v_b_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"exp_probs_b.bias", "mlp.router.e_score_correction_bias"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_exps"},
    {"ffn_up_exps.weight", "mlp.experts.up_exps"},
    {"ffn_down_exps.weight", "mlp.experts.down_exps"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
};

// A head's sizes as they stand there: its keys' with the part that turns, and its values'. Files of
// 2025 on have the cache's row in their place, and a head's apart.
constexpr GgufInteger kGgufNumbers[] = {
    {"feed_forward_length", "intermediate_size", true},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank", true},
    {"rope.dimension_count", "qk_rope_head_dim", true},
    {"attention.value_length", "v_head_dim", true},
    {"attention.key_length_mla", "key_length_mla"},
    {"attention.value_length_mla", "value_length_mla"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"expert_count", "n_routed_experts", true},
    {"expert_used_count", "num_experts_per_tok", true},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size", true},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
};
constexpr NamePair kGgufReals[] = {{"expert_weights_scale", "routed_scaling_factor"}};
constexpr NamePair kGgufBooleans[] = {{"expert_weights_norm", "norm_topk_prob"}};

void complete(Json& config) {
  if (const auto of_head = config.integer("key_length_mla")) config.set("head_dim", *of_head);
  if (const auto of_head = config.integer("value_length_mla")) config.set("v_head_dim", *of_head);
  const int64_t key_length = config.integer("head_dim").value_or(0);
  const int64_t rope = config.integer("qk_rope_head_dim").value_or(0);
  config.set("qk_nope_head_dim", key_length - rope);
  const bool is_v2 = config.string("model_type") == "deepseek_v2";
  if (is_v2 && config.integer("n_group").value_or(1) > 1) {
    config.set("topk_method", "group_limited_greedy");
  }
}

void prepare(Json& config) {
  config.set("head_dim", config.integer("qk_nope_head_dim").value_or(0) +
                             config.integer("qk_rope_head_dim").value_or(0));
}

// Keys and values of the latent lie in one matrix (attn_kv_b) as llama.cpp wrote it before it had
// latent attention, or in two, the keys' transposed (attn_k_b, attn_v_b), where there is a
// key_length_mla.
constexpr GgufNames gguf_names(int expert_gating) {
  return {.architecture = "deepseek2",
          .layer = kGgufTensors,
          .numbers = kGgufNumbers,
          .reals = kGgufReals,
          .booleans = kGgufBooleans,
          .complete = complete,
          .prepare = prepare,
          .expert_gating = expert_gating};
}
constexpr GgufNames kGgufV2 = gguf_names(1);
constexpr GgufNames kGgufV3 = gguf_names(2);

constexpr FamilyAlias kAliases[] = {{"DeepseekV3ForCausalLM", "kimi_k2"}};

// transformers' DeepseekV3Config.
constexpr std::string_view kV3Defaults = R"({
  "n_group": 8, "topk_group": 4, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "first_k_dense_replace": 3})";

Json deepseek_v3() {
  Json config = published_decoder({"DeepseekV3ForCausalLM", "deepseek_v3", 61, 7168, 128, 128,
                                   18432, 129280, 163840, 10000.0, 1e-06});
  Json rope;
  rope.set("beta_fast", 32).set("beta_slow", 1).set("factor", 40).set("mscale", 1.0);
  rope.set("mscale_all_dim", 1.0).set("original_max_position_embeddings", 4096);
  rope.set("type", "yarn");
  Json quantization;
  quantization.set("activation_scheme", "dynamic").set("fmt", "e4m3").set("quant_method", "fp8");
  quantization.set("weight_block_size", Json::Array{128, 128});
  config.set("attention_bias", false).set("bos_token_id", 0).set("eos_token_id", 1);
  config.set("ep_size", 1).set("first_k_dense_replace", 3).set("kv_lora_rank", 512);
  config.set("moe_intermediate_size", 2048).set("moe_layer_freq", 1).set("n_group", 8);
  config.set("n_routed_experts", 256).set("n_shared_experts", 1).set("norm_topk_prob", true);
  config.set("num_experts_per_tok", 8).set("num_nextn_predict_layers", 1);
  config.set("q_lora_rank", 1536);
  config.set("qk_nope_head_dim", 128).set("qk_rope_head_dim", 64);
  config.set("quantization_config", std::move(quantization)).set("rope_scaling", std::move(rope));
  config.set("routed_scaling_factor", 2.5).set("scoring_func", "sigmoid").set("topk_group", 4);
  config.set("topk_method", "noaux_tc").set("v_head_dim", 128);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"deepseek-v3", deepseek_v3}};

}  // namespace

extern const Family kDeepseekV2{.architecture = "DeepseekV2ForCausalLM",
                                .model_type = "deepseek_v2",
                                .read = read_v2,
                                .layer_names = kLayerNames,
                                .gguf = &kGgufV2};

extern const Family kDeepseekV3{.architecture = "DeepseekV3ForCausalLM",
                                .model_type = "deepseek_v3",
                                .read = read_v3,
                                .defaults = kV3Defaults,
                                .layer_names = kLayerNames,
                                .aliases = kAliases,
                                .gguf = &kGgufV3,
                                .published = kPublished};

}  // namespace pelton::families
