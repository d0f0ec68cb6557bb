#include "families/published_config.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "families/gpt_oss.h"
#include "families/registry.h"

namespace pelton::families {

std::vector<std::string_view> published_models() {
  std::vector<std::string_view> names;
  for (const Family* family : Registry::built_in().families()) {
    for (const PublishedConfig& published : family->published) names.push_back(published.name);
  }
  return names;
}

std::string published_model_names() {
  return fmt::format("{}", fmt::join(published_models(), ", "));
}

Result<Json> published_config(std::string_view model) {
  for (const Family* family : Registry::built_in().families()) {
    for (const PublishedConfig& published : family->published) {
      if (published.name == model) return published.config();
    }
  }
  return Error{ErrorCode::kNotFound, fmt::format("no published configuration \"{}\"; known: {}",
                                                 model, published_model_names())};
}

Json published_decoder(const PublishedSizes& sizes) {
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

void add_qwen_keys(Json& config, int first_sliding) {
  config.set("bos_token_id", 151643).set("eos_token_id", 151645);
  config.set("max_window_layers", first_sliding).set("use_sliding_window", false);
}

Json published_generation_config() {
  Json config;
  config.set("bos_token_id", 199998).set("do_sample", true);
  config.set("eos_token_id", Json::Array{200002, 199999, 200012});
  config.set("pad_token_id", 199999).set("transformers_version", "4.55.0.dev0");
  return config;
}

std::optional<Json> published_generation(const Json& config) {
  constexpr int64_t kLastToken = 200012;
  const bool fits = config.integer("vocab_size").value_or(INT64_MAX) > kLastToken;
  if (config.string("model_type") != kGptOss.model_type || !fits) return std::nullopt;
  return published_generation_config();
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
