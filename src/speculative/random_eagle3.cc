#include "speculative/random_eagle3.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "speculative/eagle3_config.h"
#include "speculative/random_tensors.h"

namespace pelton::speculative {
namespace {

constexpr int kDraftVocabMax = 32'000;

// Ascending ids, spread over the target's vocabulary, less those of the draft's.
std::vector<int64_t> draft_offsets(const Eagle3Config& config) {
  const int64_t vocab = config.layer.vocab_size;
  std::vector<int64_t> offsets;
  for (int64_t id = 0; id < config.draft_vocab_size; ++id) {
    offsets.push_back(id * vocab / config.draft_vocab_size - id);
  }
  return offsets;
}

RandomTensors tensors_of(const Eagle3Config& config, bool own_embedding) {
  const families::ModelConfig& layer = config.layer;
  const int64_t hidden = layer.hidden_size;
  RandomTensors tensors;
  tensors.matrix("fc", hidden, kEagle3Taps * hidden, 0.7);
  if (config.norm_before_fc) tensors.norm("input_norm", kEagle3Taps * hidden);
  for (int i = 0; config.fc_norm && i < kEagle3Taps; ++i) {
    tensors.norm(fmt::format("fc_norm.{}", i), hidden);
  }
  for (const char* name : {"input_layernorm", "hidden_norm", "post_attention_layernorm"}) {
    tensors.norm(std::string("midlayer.") + name, hidden);
  }
  const std::string attention = "midlayer.self_attn.";
  const std::array<std::pair<const char*, int64_t>, 3> projections = {
      {{"q_proj", layer.q_size()}, {"k_proj", layer.kv_size()}, {"v_proj", layer.kv_size()}}};
  for (const auto& [name, rows] : projections) {
    tensors.matrix(attention + name, rows, 2 * hidden, 1.3);
    if (config.attention_bias) tensors.vector(attention + name + ".bias", rows, 0.3, 0.0);
  }
  tensors.matrix(attention + "o_proj", hidden, layer.q_size(), 1.2);
  if (config.attention_bias) tensors.vector(attention + "o_proj.bias", hidden, 0.2, 0.0);
  tensors.matrix("midlayer.mlp.gate_proj", layer.intermediate_size, hidden, 1.3);
  tensors.matrix("midlayer.mlp.up_proj", layer.intermediate_size, hidden, 1.3);
  tensors.matrix("midlayer.mlp.down_proj", hidden, layer.intermediate_size, 0.8);
  tensors.norm("norm", hidden);
  tensors.matrix("lm_head", config.draft_vocab_size, hidden, 2.5);
  if (own_embedding) tensors.table("embed_tokens.weight", layer.vocab_size, hidden, 1.0);
  if (config.draft_vocab_size < layer.vocab_size) tensors.numbers("d2t", draft_offsets(config));
  return tensors;
}

}  // namespace

Json random_eagle3_config(const Json& target) {
  Json config;
  config.set("architectures", Json::Array{Json("LlamaForCausalLMEagle3")});
  config.set("model_type", "llama");
  config.set("num_hidden_layers", 1);
  config.set("hidden_act", "silu");
  for (const char* key :
       {"hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling"}) {
    if (const Json* value = target.find(key)) config.set(key, *value);
  }
  const int64_t layers = target.integer("num_hidden_layers").value_or(0);
  Json::Array taps;
  for (const int64_t tap : {int64_t{2}, layers / 2, layers - 3}) {
    taps.push_back(Json(std::clamp<int64_t>(tap, 0, layers)));
  }
  Json eagle;
  eagle.set("eagle_aux_hidden_state_layer_ids", std::move(taps));
  config.set("eagle_config", std::move(eagle));
  const int64_t hidden = target.integer("hidden_size").value_or(0);
  const int64_t vocab = target.integer("vocab_size").value_or(0);
  config.set("intermediate_size", 6 * hidden);
  config.set("draft_vocab_size", std::min<int64_t>(vocab, kDraftVocabMax));
  return config;
}

Result<void> write_random_eagle3(const Json& json, const families::ModelConfig& target,
                                 uint64_t seed, const std::string& folder) {
  TRY_ASSIGN(const Eagle3Config config, parse_eagle3_config(json, target, folder + "/config.json"));
  const bool own_embedding = json.boolean("embed_tokens").value_or(false);
  return tensors_of(config, own_embedding).write(json, seed, folder);
}

}  // namespace pelton::speculative
