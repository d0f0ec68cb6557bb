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

constexpr int64_t kLabelsMax = 4096;
constexpr std::string_view kClassifier = "ForSequenceClassification";

// id2label: {"0": "LABEL_0", ...}; without it num_labels, or transformers' default of two.
Result<void> read_labels(const ConfigFields& fields, ModelConfig& config) {
  const Json* names = fields.find("id2label");
  if (names == nullptr) {
    TRY_ASSIGN(config.label_count, fields.integer_or("num_labels", 2, {1, kLabelsMax}));
    return {};
  }
  if (!names->is_object() || names->as_object().empty() ||
      names->as_object().size() > static_cast<size_t>(kLabelsMax)) {
    return fields.bad("id2label", fmt::format("must be an object of 1 to {} names", kLabelsMax));
  }
  config.label_count = static_cast<int>(names->as_object().size());
  for (int i = 0; i < config.label_count; ++i) {
    const Json* name = names->find(std::to_string(i));
    if (name == nullptr || !name->is_string()) {
      return fields.bad("id2label", fmt::format("has no name for \"{}\"", i));
    }
    config.labels.push_back(name->as_string());
  }
  return {};
}

// A decoder with a head of labels in place of its output head (transformers'
// GenericForSequenceClassification) is its family's: "LlamaForSequenceClassification".
const Family* find_family(const Registry& registry, const std::string& architecture,
                          const std::string& model_type) {
  const Family* const family = registry.find(architecture, model_type);
  if (family != nullptr || !architecture.ends_with(kClassifier)) return family;
  const std::string stem = architecture.substr(0, architecture.size() - kClassifier.size());
  return registry.find(stem + "ForCausalLM", model_type);
}

bool has_labels(const ConfigFields& fields) {
  const Json* list = fields.find("architectures");
  return list != nullptr && list->is_array() &&
         std::ranges::any_of(list->as_array(), [](const Json& name) {
           return name.is_string() && name.as_string().ends_with(kClassifier);
         });
}

Result<const Family*> family_of(const Json& json, const ConfigFields& fields,
                                const Registry& registry) {
  const std::string model_type = json.string("model_type").value_or("");
  const Json* list = fields.find("architectures");
  if (list != nullptr && list->is_array()) {
    for (const Json& name : list->as_array()) {
      if (!name.is_string()) continue;
      const Family* family = find_family(registry, name.as_string(), model_type);
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
  if (has_labels(fields)) {
    TRY(read_labels(fields, parsed));
    parsed.tied_head = true;  // there is no other
  }
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
