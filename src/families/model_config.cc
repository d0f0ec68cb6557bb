#include "families/model_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "families/registry.h"

namespace pelton::families {
namespace {

Result<void> refuse_duplicate_keys(const Json& json, const std::string& file) {
  if (!json.is_object()) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: expected an object, found {}", file, json.kind_name())};
  }
  std::vector<std::string_view> keys;
  for (const Json::Member& member : json.as_object()) keys.push_back(member.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return {};
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: the key {} is there twice", file, shown(*twice))};
}

// The text's part of a model with other modalities, and what such files say beside it of the whole.
Json unwrapped(const Json& json) {
  const Json* text = json.find("text_config");
  if (text == nullptr || !text->is_object()) return json;
  Json merged = *text;
  for (const char* key : {"architectures", "model_type", "quantization_config",
                          "tie_word_embeddings", "eos_token_id"}) {
    const Json* whole = json.find(key);
    if (whole != nullptr && !whole->is_null()) merged.set(key, *whole);
  }
  return merged;
}

// The family's defaults, and over them what the file says.
Json with_defaults(const Family& family, const Json& file) {
  Json filled = Json::parse(family.defaults).value();
  for (const Json::Member& member : file.as_object()) {
    if (!member.value.is_null() || filled.find(member.key) == nullptr) {
      filled.set(member.key, member.value);
    }
  }
  return filled;
}

Result<const Family*> family_of(const Json& json, const ConfigFields& fields,
                                const Registry& registry) {
  const std::string model_type = json.string("model_type").value_or("");
  const Json* list = fields.find("architectures");
  if (list != nullptr && list->is_array()) {
    for (const Json& name : list->as_array()) {
      if (!name.is_string()) continue;
      const Family* family = registry.find(name.as_string(), model_type);
      if (family != nullptr) return family;
    }
  }
  const std::string architectures =
      list != nullptr && list->is_array() ? shown(*list) : std::string("missing");
  return fields.unsupported("architectures",
                            fmt::format("is {} with model_type {}; supported: {}", architectures,
                                        shown(Json(model_type)), registry.supported()));
}

// Each expert has tensors of its own: what their names take is bounded, too. DeepSeek V3 has 14 848
// experts in all.
Result<void> check_tensor_count(const ConfigFields& fields, const ModelConfig& config) {
  constexpr int64_t kExpertsInAllMax = 1 << 16;
  const int64_t experts = int64_t{config.expert_layers()} * config.expert_count;
  if (config.family->expert_files == ExpertFiles::kMxfp4 || experts <= kExpertsInAllMax) return {};
  return fields.bad("num_hidden_layers",
                    fmt::format("of {} experts each make {} experts in all; at most {} are read",
                                config.expert_count, experts, kExpertsInAllMax));
}

}  // namespace

int ModelConfig::count(AttentionKind kind) const {
  return static_cast<int>(
      std::count_if(layers.begin(), layers.end(),
                    [&](const LayerConfig& layer) { return layer.attention == kind; }));
}

int ModelConfig::expert_layers() const {
  return static_cast<int>(std::count_if(
      layers.begin(), layers.end(), [](const LayerConfig& layer) { return layer.has_experts; }));
}

Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file) {
  return parse_model_config(config, generation, file, Registry::built_in());
}

Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file, const Registry& registry) {
  ModelConfig parsed{.name = file};
  TRY(refuse_duplicate_keys(config, file));
  const Json text = unwrapped(config);
  TRY(refuse_duplicate_keys(text, file));
  TRY_ASSIGN(parsed.family, family_of(text, ConfigFields(text, file), registry));
  const Json filled = with_defaults(*parsed.family, text);
  const ConfigFields fields(filled, file);
  parsed.architecture = parsed.family->architecture;
  parsed.model_type = parsed.family->model_type;
  TRY(parsed.family->read(fields, parsed));
  TRY(check_tensor_count(fields, parsed));
  // The keys that say so by a "no".
  TRY(fields.only("is_causal", Json(true)));
  TRY(fields.refuse_unread_arithmetic());
  TRY(add_eos_tokens(fields, parsed));
  if (generation != nullptr) {
    const std::string generation_file = file + " (with generation_config.json)";
    TRY(refuse_duplicate_keys(*generation, generation_file));
    TRY(add_eos_tokens(ConfigFields(*generation, generation_file), parsed));
  }
  return parsed;
}

}  // namespace pelton::families
