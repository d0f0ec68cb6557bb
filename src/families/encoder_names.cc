#include "families/encoder_names.h"

#include <iterator>

#include <fmt/format.h>

#include "families/family.h"

namespace pelton::families {
namespace {

constexpr std::string_view kModelPrefixes[] = {"bert.", "roberta."};

// Whole modules: `NAME.weight` and `NAME.bias`.
constexpr NamePair kModules[] = {
    {"embeddings.word_embeddings", "model.embed_tokens"},
    {"embeddings.position_embeddings", "model.embed_positions"},
    {"embeddings.token_type_embeddings", "model.embed_types"},
    {"embeddings.LayerNorm", "model.embed_norm"},
};

constexpr NamePair kLayerModules[] = {
    {"attention.self.query", "self_attn.q_proj"},
    {"attention.self.key", "self_attn.k_proj"},
    {"attention.self.value", "self_attn.v_proj"},
    {"attention.output.dense", "self_attn.o_proj"},
    {"attention.output.LayerNorm", "post_attention_layernorm"},
    {"intermediate.dense", "mlp.up_proj"},
    {"output.dense", "mlp.down_proj"},
    {"output.LayerNorm", "post_feedforward_layernorm"},
};

// RoBERTa's head; BERT's is its pooler and one product.
constexpr NamePair kRobertaHead[] = {
    {"classifier.dense", "classifier.dense"},
    {"classifier.out_proj", "classifier.out_proj"},
};
constexpr NamePair kBertHead[] = {
    {"pooler.dense", "classifier.dense"},
    {"classifier", "classifier.out_proj"},
};

// Heads of a masked language model, and what files keep of constants.
constexpr std::string_view kUnused[] = {"cls.", "lm_head.", "embeddings.position_ids",
                                        "embeddings.token_type_ids"};

// A module and what it holds: "weight", "bias". Files of 2018 say gamma and beta.
struct Parts {
  std::string_view module;
  std::string_view what;
};

Parts parts_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {name, ""};
  std::string_view what = name.substr(dot + 1);
  if (what == "gamma") what = "weight";
  if (what == "beta") what = "bias";
  return {name.substr(0, dot), what};
}

template <size_t kCount>
std::string renamed(const Parts& parts, const NamePair (&table)[kCount]) {
  for (const NamePair& pair : table) {
    if (pair.foreign == parts.module) return fmt::format("{}.{}", pair.ours, parts.what);
  }
  return "";
}

template <size_t kCount>
std::string renamed_back(const Parts& parts, const NamePair (&table)[kCount]) {
  for (const NamePair& pair : table) {
    if (pair.ours == parts.module) return fmt::format("{}.{}", pair.foreign, parts.what);
  }
  return "";
}

bool is_bert(const ModelConfig& config) {
  return config.encoder.first_position == 0;
}

constexpr std::string_view kStoredLayers = "encoder.layer.";
constexpr std::string_view kLayers = "model.layers.";

}  // namespace

std::string encoder_tensor_name(const ModelConfig& config, std::string_view stored) {
  std::string_view name = stored;
  for (const std::string_view prefix : kModelPrefixes) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  for (const std::string_view unused : kUnused) {
    if (name.starts_with(unused)) return "";
  }
  if (name.starts_with(kStoredLayers)) {
    const std::string_view rest = name.substr(kStoredLayers.size());
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return std::string(stored);
    const std::string in_layer = renamed(parts_of(rest.substr(dot + 1)), kLayerModules);
    if (in_layer.empty()) return std::string(stored);
    return fmt::format("{}{}.{}", kLayers, rest.substr(0, dot), in_layer);
  }
  const Parts parts = parts_of(name);
  std::string found = renamed(parts, kModules);
  if (!found.empty()) return found;
  if (config.label_count == 0) {
    return name.starts_with("pooler.") || name.starts_with("classifier.") ? ""
                                                                          : std::string(stored);
  }
  // A file of RoBERTa's with labels may have a pooler, too, which nothing reads.
  if (!is_bert(config) && name.starts_with("pooler.")) return "";
  found = is_bert(config) ? renamed(parts, kBertHead) : renamed(parts, kRobertaHead);
  return found.empty() ? std::string(stored) : found;
}

std::string encoder_published_name(const ModelConfig& config, std::string_view name) {
  if (name.starts_with(kLayers)) {
    const std::string_view rest = name.substr(kLayers.size());
    const size_t dot = rest.find('.');
    return fmt::format("{}{}.{}", kStoredLayers, rest.substr(0, dot),
                       renamed_back(parts_of(rest.substr(dot + 1)), kLayerModules));
  }
  const Parts parts = parts_of(name);
  const std::string found = renamed_back(parts, kModules);
  if (!found.empty()) return found;
  return is_bert(config) ? renamed_back(parts, kBertHead) : renamed_back(parts, kRobertaHead);
}

}  // namespace pelton::families
