#include "families/mistral_original.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "families/config_fields.h"
#include "families/family.h"

namespace pelton::families {
namespace {

constexpr NamePair kKeys[] = {
    {"dim", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"head_dim", "head_dim"},
    {"hidden_dim", "intermediate_size"},
    {"n_heads", "num_attention_heads"},
    {"n_kv_heads", "num_key_value_heads"},
    {"norm_eps", "rms_norm_eps"},
    {"vocab_size", "vocab_size"},
    {"rope_theta", "rope_theta"},
    {"sliding_window", "sliding_window"},
    {"max_position_embeddings", "max_position_embeddings"},
    {"max_seq_len", "max_position_embeddings"},
    {"tied_embeddings", "tie_word_embeddings"},
};

// Said and without meaning for the arithmetic of text.
constexpr std::string_view kHarmless[] = {"model_type",     "vision_encoder", "multimodal",
                                          "max_batch_size", "use_biases",     "causal"};

constexpr NamePair kGlobalNames[] = {
    {"tok_embeddings.weight", "model.embed_tokens.weight"},
    {"norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

constexpr NamePair kLayerNames[] = {
    {"attention_norm.weight", "input_layernorm.weight"},
    {"attention.wq.weight", "self_attn.q_proj.weight"},
    {"attention.wk.weight", "self_attn.k_proj.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},
};

// Where the file does not say it: what 7B v0.1 was published with.
constexpr int kContextDefault = 32768;

}  // namespace

Result<Json> config_from_mistral(const Json& params, const std::string& file) {
  const ConfigFields fields(params, file);
  if (!params.is_object()) return fields.bad("params.json", "must be an object");
  Json config;
  config.set("architectures", Json::Array{"MistralForCausalLM"}).set("model_type", "mistral");
  config.set("max_position_embeddings", kContextDefault);
  for (const Json::Member& member : params.as_object()) {
    const auto* known = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const NamePair& pair) {
      return pair.foreign == member.key;
    });
    const bool harmless =
        std::find(std::begin(kHarmless), std::end(kHarmless), member.key) != std::end(kHarmless);
    if (known != std::end(kKeys)) {
      if (!member.value.is_null()) config.set(known->ours, member.value);
    } else if (!harmless && !member.value.is_null() && member.value != Json(false)) {
      return fields.unsupported(member.key,
                                fmt::format("is {}; supported: not there", shown(member.value)));
    }
  }
  TRY(fields.only("use_biases", Json(false)));
  TRY(fields.only("causal", Json(true)));
  // What mistral-inference has where the file says nothing: no window, and without one a base for
  // long texts. 7B v0.1's file says its window, and no base.
  const bool slides = config.find("sliding_window") != nullptr;
  if (!slides) config.set("sliding_window", nullptr);
  if (config.find("rope_theta") == nullptr) config.set("rope_theta", slides ? 1e4 : 1e6);
  return config;
}

std::string name_from_mistral(std::string_view stored) {
  for (const NamePair& pair : kGlobalNames) {
    if (pair.foreign == stored) return std::string(pair.ours);
  }
  constexpr std::string_view kLayers = "layers.";
  if (!stored.starts_with(kLayers)) return "";
  stored.remove_prefix(kLayers.size());
  const size_t digits = stored.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || digits > 6 || stored[digits] != '.') {
    return "";
  }
  for (const NamePair& pair : kLayerNames) {
    if (pair.foreign != stored.substr(digits + 1)) continue;
    return fmt::format("model.layers.{}.{}", stored.substr(0, digits), pair.ours);
  }
  return "";
}

}  // namespace pelton::families
