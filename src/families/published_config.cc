#include "families/published_config.h"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace pelton::families {

namespace {

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

// What the files of Llama's descendants say alike.
struct Decoder {
  const char* architecture;
  const char* model_type;
  int layers;
  int hidden;
  int heads;
  int kv_heads;
  int intermediate;
  int vocab;
  int context;
  double theta;
  double epsilon;
  bool tied = false;
};

Json decoder(const Decoder& sizes) {
  Json config;
  config.set("architectures", Json::Array{sizes.architecture}).set("attention_dropout", 0.0);
  config.set("hidden_act", "silu").set("hidden_size", sizes.hidden);
  config.set("initializer_range", 0.02).set("intermediate_size", sizes.intermediate);
  config.set("max_position_embeddings", sizes.context).set("model_type", sizes.model_type);
  config.set("num_attention_heads", sizes.heads).set("num_hidden_layers", sizes.layers);
  config.set("num_key_value_heads", sizes.kv_heads).set("rms_norm_eps", sizes.epsilon);
  config.set("rope_scaling", nullptr).set("rope_theta", sizes.theta);
  config.set("tie_word_embeddings", sizes.tied).set("torch_dtype", "bfloat16");
  config.set("use_cache", true).set("vocab_size", sizes.vocab);
  return config;
}

Json llama_3_1() {
  Json config = decoder(
      {"LlamaForCausalLM", "llama", 32, 4096, 32, 8, 14336, 128256, 131072, 500000.0, 1e-05});
  Json rope;
  rope.set("factor", 8.0).set("low_freq_factor", 1.0).set("high_freq_factor", 4.0);
  rope.set("original_max_position_embeddings", 8192).set("rope_type", "llama3");
  config.set("attention_bias", false).set("mlp_bias", false).set("rope_scaling", std::move(rope));
  config.set("bos_token_id", 128000).set("eos_token_id", Json::Array{128001, 128008, 128009});
  return config;
}

Json mistral_7b() {
  Json config =
      decoder({"MistralForCausalLM", "mistral", 32, 4096, 32, 8, 14336, 32768, 32768, 1e6, 1e-05});
  config.set("bos_token_id", 1).set("eos_token_id", 2).set("sliding_window", nullptr);
  return config;
}

Json mixtral() {
  Json config =
      decoder({"MixtralForCausalLM", "mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, 1e6, 1e-05});
  config.set("bos_token_id", 1).set("eos_token_id", 2).set("sliding_window", nullptr);
  config.set("num_experts_per_tok", 2).set("num_local_experts", 8);
  config.set("output_router_logits", false).set("router_aux_loss_coef", 0.02);
  return config;
}

Json gemma3_4b() {
  Json config = decoder({"Gemma3ForCausalLM", "gemma3_text", 34, 2560, 8, 4, 10240, 262208, 131072,
                         1e6, 1e-06, true});
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

Json deepseek_v3() {
  Json config = decoder({"DeepseekV3ForCausalLM", "deepseek_v3", 61, 7168, 128, 128, 18432, 129280,
                         163840, 10000.0, 1e-06});
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

Json with_qwen_tokens(Json config, int layers) {
  config.set("bos_token_id", 151643).set("eos_token_id", 151645);
  config.set("max_window_layers", layers).set("use_sliding_window", false);
  return config;
}

Json qwen2_5() {
  Json config =
      decoder({"Qwen2ForCausalLM", "qwen2", 24, 896, 14, 2, 4864, 151936, 32768, 1e6, 1e-06, true});
  config.set("sliding_window", 32768);
  return with_qwen_tokens(std::move(config), 21);
}

Json qwen3() {
  Json config = decoder(
      {"Qwen3ForCausalLM", "qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, 1e6, 1e-06, true});
  config.set("attention_bias", false).set("head_dim", 128).set("sliding_window", nullptr);
  return with_qwen_tokens(std::move(config), 28);
}

Json qwen3_moe() {
  Json config = decoder(
      {"Qwen3MoeForCausalLM", "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960, 1e6, 1e-06});
  config.set("attention_bias", false).set("head_dim", 128).set("sliding_window", nullptr);
  config.set("decoder_sparse_step", 1).set("mlp_only_layers", Json::Array{});
  config.set("moe_intermediate_size", 768).set("norm_topk_prob", true).set("num_experts", 128);
  config.set("num_experts_per_tok", 8).set("output_router_logits", false);
  return with_qwen_tokens(std::move(config), 48);
}

struct Published {
  std::string_view name;
  Json (*config)();
};

constexpr Published kDecoders[] = {
    {"deepseek-v3", deepseek_v3},    {"gemma-3-4b", gemma3_4b},    {"llama-3.1-8b", llama_3_1},
    {"mistral-7b-v0.3", mistral_7b}, {"mixtral-8x7b", mixtral},    {"qwen2.5-0.5b", qwen2_5},
    {"qwen3-0.6b", qwen3},           {"qwen3-30b-a3b", qwen3_moe},
};

}  // namespace

std::vector<std::string_view> published_models() {
  std::vector<std::string_view> names = {"gpt-oss-20b", "gpt-oss-120b"};
  for (const Published& published : kDecoders) names.push_back(published.name);
  return names;
}

Result<Json> published_config(std::string_view model) {
  if (model == "gpt-oss-20b" || model == "gpt-oss-120b") return gpt_oss(model == "gpt-oss-120b");
  for (const Published& published : kDecoders) {
    if (published.name == model) return published.config();
  }
  return Error{ErrorCode::kNotFound, fmt::format("no published configuration \"{}\"; known: {}",
                                                 model, kPublishedModels)};
}

Json published_generation_config() {
  Json config;
  config.set("bos_token_id", 199998).set("do_sample", true);
  config.set("eos_token_id", Json::Array{200002, 199999, 200012});
  config.set("pad_token_id", 199999).set("transformers_version", "4.55.0.dev0");
  return config;
}

void set_layer_count(Json& config, int layer_count) {
  config.set("num_hidden_layers", layer_count);
  if (config.find("layer_types") == nullptr) return;
  Json::Array types;
  for (int i = 0; i < layer_count; ++i) {
    types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  config.set("layer_types", std::move(types));
}

}  // namespace pelton::families
