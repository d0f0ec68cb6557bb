#include "cost_model/parameters.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "cost_model/built_in_data.h"
#include "families/published_config.h"

namespace pelton::cost_model {
namespace {

using families::AttentionKind;
using families::LatentConfig;
using families::ModelConfig;

// Of one layer, multi-head latent attention.
int64_t latent_parameters(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  const int64_t hidden = config.hidden_size;
  const int64_t heads = config.head_count;
  const int64_t query = heads * (latent.nope_size + latent.rope_size);
  const int64_t queries = latent.q_rank > 0
                              ? hidden * latent.q_rank + latent.q_rank + latent.q_rank * query
                              : hidden * query;
  return queries + hidden * (latent.kv_rank + latent.rope_size) + latent.kv_rank +
         latent.kv_rank * heads * (latent.nope_size + latent.value_size) +
         heads * latent.value_size * hidden;
}

int64_t attention_parameters(const ModelConfig& config) {
  if (config.layers.front().attention == AttentionKind::kLatent) return latent_parameters(config);
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  int64_t count = hidden * (q + 2 * kv) + q * hidden;
  if (config.qkv_bias) count += q + 2 * kv;
  if (config.attn_out_bias) count += hidden;
  if (config.attention_sinks) count += config.head_count;
  if (config.qk_norm) count += 2 * config.head_size;
  return count;
}

std::string data_file(const std::string& model) {
  return "models/" + model + ".json";
}

}  // namespace

int64_t kv_elements(const ModelConfig& config, AttentionKind kind) {
  if (kind == AttentionKind::kLatent) return config.latent.kv_rank + config.latent.rope_size;
  return int64_t{2} * config.kv_size();
}

double kv_bytes(const ModelConfig& config, int64_t tokens, double element_bytes) {
  double elements = 0;
  for (const families::LayerConfig& layer : config.layers) {
    const bool slides = layer.attention == AttentionKind::kSliding;
    const int64_t held = slides ? std::min<int64_t>(tokens, config.sliding_window) : tokens;
    elements +=
        static_cast<double>(kv_elements(config, layer.attention)) * static_cast<double>(held);
  }
  return elements * element_bytes;
}

namespace {

// BERT's: biases everywhere, two matrices in an MLP, tables of positions and types.
ParameterCount count_encoder(const ModelConfig& config) {
  ParameterCount count;
  const int64_t hidden = config.hidden_size;
  const int64_t layers = config.layer_count();
  const int64_t inner = config.intermediate_size;
  count.embedding =
      (config.vocab_size + config.encoder.position_rows + config.encoder.type_rows) * hidden;
  count.attention = layers * 4 * (hidden * hidden + hidden);
  count.dense = layers * (2 * hidden * inner + inner + hidden);
  count.other = (2 * layers + 1) * 2 * hidden;
  if (config.label_count > 0)
    count.head = hidden * hidden + hidden + (hidden + 1) * config.label_count;
  return count;
}

}  // namespace

ParameterCount count_parameters(const ModelConfig& config) {
  if (config.is_encoder()) return count_encoder(config);
  ParameterCount count;
  const int64_t hidden = config.hidden_size;
  const int64_t layers = config.layer_count();
  const int64_t expert_layers = config.expert_layers();
  count.embedding = config.vocab_size * hidden;
  count.head = config.tied_head ? 0 : config.vocab_size * hidden;
  count.head += config.label_count * hidden;
  count.attention = layers * attention_parameters(config);
  count.other = ((config.post_norms ? 4 : 2) * layers + 1) * hidden;
  count.dense = (layers - expert_layers) * 3 * hidden * config.intermediate_size;
  if (expert_layers > 0) {
    const int64_t inner = config.expert_intermediate_size;
    count.expert = 3 * hidden * inner;
    if (config.expert_bias) count.expert += 2 * inner + hidden;
    count.experts = expert_layers * config.expert_count * count.expert;
    count.dense += expert_layers * config.shared_expert_count * 3 * hidden * inner;
    int64_t router = hidden * config.expert_count;
    if (config.expert_bias || config.router.correction) router += config.expert_count;
    count.other += expert_layers * router;
  }
  return count;
}

int64_t ParameterCount::active(const ModelConfig& config) const {
  // Of the embedding one row is read, which is no product.
  const int64_t head_used = head > 0 || config.is_encoder() ? head : embedding;
  return attention + dense + other + head_used +
         int64_t{config.expert_layers()} * config.experts_per_token * expert;
}

double weight_bytes(const ModelConfig& config) {
  const ParameterCount count = count_parameters(config);
  const auto experts = static_cast<double>(count.experts);
  const auto others = static_cast<double>(count.total() - count.experts);
  return (experts * config.expert_bits + others * config.other_bits) / 8;
}

bool is_known_model(const std::string& model) {
  return families::published_config(model).ok() || find_data(data_file(model));
}

Result<ModelConfig> find_model_config(const std::string& model) {
  // These say more: how many parameters the model's name promises.
  if (const std::optional<std::string_view> text = find_data(data_file(model))) {
    TRY_ASSIGN(const Json config, Json::parse(*text));
    return families::parse_planned_config(config, model);
  }
  if (const Result<Json> config = families::published_config(model); config.ok()) {
    return families::parse_planned_config(*config, model);
  }
  std::string file = model;
  if (std::filesystem::is_directory(file)) file += "/config.json";
  if (!std::filesystem::exists(file)) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{} is no folder or config.json, nor {}, {}", model,
                    families::published_model_names(), fmt::join(data_names("models/"), ", ")),
        "model"};
  }
  TRY_ASSIGN(const std::string text, base::read_file(file));
  TRY_ASSIGN(const Json json, Json::parse(text));
  TRY_ASSIGN(ModelConfig config, families::parse_planned_config(json, file));
  config.name = model;
  return config;
}

}  // namespace pelton::cost_model
