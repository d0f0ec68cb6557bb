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

Result<const Family*> family_of(const Json& json, const ConfigFields& fields) {
  const std::string model_type = json.string("model_type").value_or("");
  const Json* list = fields.find("architectures");
  if (list != nullptr && list->is_array()) {
    for (const Json& name : list->as_array()) {
      if (!name.is_string()) continue;
      const Family* family = find_family(name.as_string(), model_type);
      if (family != nullptr) return family;
    }
  }
  const std::string architectures =
      list != nullptr && list->is_array() ? shown(*list) : std::string("missing");
  return fields.unsupported("architectures",
                            fmt::format("is {} with model_type {}; supported: {}", architectures,
                                        shown(Json(model_type)), supported_families()));
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
  ModelConfig parsed{.name = file};
  TRY(refuse_duplicate_keys(config, file));
  const ConfigFields fields(config, file);
  TRY_ASSIGN(parsed.family, family_of(config, fields));
  parsed.architecture = parsed.family->architecture;
  parsed.model_type = parsed.family->model_type;
  TRY(parsed.family->read(fields, parsed));
  TRY(add_eos_tokens(fields, parsed));
  if (generation != nullptr) {
    const std::string generation_file = file + " (with generation_config.json)";
    TRY(refuse_duplicate_keys(*generation, generation_file));
    TRY(add_eos_tokens(ConfigFields(*generation, generation_file), parsed));
  }
  return parsed;
}

}  // namespace pelton::families
