#include "checkpoint/published_config.h"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace pelton::checkpoint {

Result<Json> published_config(std::string_view model) {
  const bool large = model == "gpt-oss-120b";
  if (!large && model != "gpt-oss-20b") {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("no published configuration \"{}\"; known: gpt-oss-20b, gpt-oss-120b", model)};
  }
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

Json published_generation_config() {
  Json config;
  config.set("bos_token_id", 199998).set("do_sample", true);
  config.set("eos_token_id", Json::Array{200002, 199999, 200012});
  config.set("pad_token_id", 199999).set("transformers_version", "4.55.0.dev0");
  return config;
}

void set_layer_count(Json& config, int layer_count) {
  Json::Array types;
  for (int i = 0; i < layer_count; ++i) {
    types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  config.set("layer_types", std::move(types)).set("num_hidden_layers", layer_count);
}

}  // namespace pelton::checkpoint
