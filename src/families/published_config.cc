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

Json qwen3_small() {
  Json config;
  config.set("architectures", Json::Array{"Qwen3ForCausalLM"}).set("attention_bias", false);
  config.set("attention_dropout", 0.0).set("bos_token_id", 151643).set("eos_token_id", 151645);
  config.set("head_dim", 128).set("hidden_act", "silu").set("hidden_size", 1024);
  config.set("initializer_range", 0.02).set("intermediate_size", 3072);
  config.set("max_position_embeddings", 40960).set("max_window_layers", 28);
  config.set("model_type", "qwen3").set("num_attention_heads", 16);
  config.set("num_hidden_layers", 28).set("num_key_value_heads", 8).set("rms_norm_eps", 1e-06);
  config.set("rope_scaling", nullptr).set("rope_theta", 1000000).set("sliding_window", nullptr);
  config.set("tie_word_embeddings", true).set("torch_dtype", "bfloat16");
  config.set("transformers_version", "4.51.0").set("use_cache", true);
  config.set("use_sliding_window", false).set("vocab_size", 151936);
  return config;
}

}  // namespace

Result<Json> published_config(std::string_view model) {
  if (model == "gpt-oss-20b" || model == "gpt-oss-120b") return gpt_oss(model == "gpt-oss-120b");
  if (model == "qwen3-0.6b") return qwen3_small();
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
