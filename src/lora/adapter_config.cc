#include "lora/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"

namespace pelton::lora {
namespace {

using checkpoint::shown;

constexpr int kLayersMax = 10'000;
constexpr size_t kInvocationTokensMax = 1024;

// A value for a message.
std::string printed(const Json& value) {
  if (value.is_string()) return shown(value.as_string());
  return value.is_number() || value.is_bool() ? value.dump() : shown(value.dump());
}

// Null, false, or without content: what a field says that means nothing.
bool is_off(const Json* value) {
  if (value == nullptr || value->is_null()) return true;
  if (value->is_bool()) return !value->as_bool();
  if (value->is_array()) return value->as_array().empty();
  if (value->is_object()) return value->as_object().empty();
  return false;
}

struct Refused {
  const char* field;
  const char* why;
};
// Each makes of an adapter more, or something else, than W x + s B (A x).
constexpr Refused kRefused[] = {
    {"use_dora", "DoRA rescales the base's weights"},
    {"use_qalora", "QA-LoRA pools an adapter's inputs"},
    {"lora_bias", "adapters have no biases here"},
    {"fan_in_fan_out", "it is for bases whose matrices lie transposed"},
    {"modules_to_save", "whole modules are no low-rank sum"},
    {"trainable_token_indices", "embeddings are the base's"},
    {"layer_replication", "it makes another base"},
    {"arrow_config", "it routes among adapters"},
    {"megatron_config", "it is for layers that are cut over several processes"},
    {"loftq_config", "LoftQ changes the base's weights"},
    {"auto_map", "code that comes with a model is not run"},
};

// Ways to initialise that leave the base's weights as they are. After the others (PiSSA, OLoRA,
// LoftQ, CorDA, LoRA-GA) what was saved is no sum on the published ones.
constexpr std::string_view kKeepsBase[] = {"gaussian", "eva", "orthogonal"};

// All other fields that PEFT and common trainers write: what this room reads, and what says nothing
// of the sum.
constexpr std::string_view kKnown[] = {
    // read
    "alora_invocation_tokens", "alpha_pattern", "bias", "exclude_modules", "init_lora_weights",
    "layers_pattern", "layers_to_transform", "lora_alpha", "peft_type", "peft_version", "r",
    "rank_pattern", "target_modules", "target_parameters", "use_rslora",
    // of training, of initialising, of switches that are off, or for people
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
    "inference_mode", "lora_dropout", "lora_ga_config", "megatron_core", "qalora_group_size",
    "revision", "runtime_config", "task_type", "unsloth_fixed"};

// What is not known may change the sum in a way that is not known either.
Result<void> check_known(const Json& config, const std::string& file) {
  for (const Json::Member& member : config.as_object()) {
    if (is_off(&member.value)) continue;
    if (std::ranges::find(kKnown, member.key) != std::end(kKnown)) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {}: it is not known here, and may change what the adapter does; "
                             "that is not supported (where it does not: remove it)",
                             file, shown(member.key))};
  }
  return {};
}

Result<void> check_refused(const Json& config, const std::string& file) {
  const auto refuse = [&](std::string_view field, std::string_view why) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {}: {}; that is not supported", file, field, why)};
  };
  for (const Refused& refused : kRefused) {
    if (!is_off(config.find(refused.field))) return refuse(refused.field, refused.why);
  }
  const Json* type = config.find("peft_type");
  if (type == nullptr || !type->is_string() || type->as_string() != "LORA") {
    return refuse("peft_type", type == nullptr ? "it is missing; a LoRA's is \"LORA\""
                                               : fmt::format("{} is no LORA", printed(*type)));
  }
  const Json* bias = config.find("bias");
  if (bias != nullptr && !bias->is_null() && (!bias->is_string() || bias->as_string() != "none")) {
    return refuse(
        "bias", fmt::format("{} trains biases, which adapters have none of here", printed(*bias)));
  }
  const Json* pattern = config.find("layers_pattern");
  if (!is_off(pattern) && pattern->dump() != R"("layers")" && pattern->dump() != R"(["layers"])") {
    return refuse("layers_pattern", printed(*pattern) + " is not what layers are called");
  }
  const Json* init = config.find("init_lora_weights");
  const bool keeps_base = init == nullptr || init->is_null() || init->is_bool() ||
                          (init->is_string() && std::ranges::find(kKeepsBase, init->as_string()) !=
                                                    std::end(kKeepsBase));
  if (!keeps_base) {
    return refuse("init_lora_weights",
                  fmt::format("{} changes the base's weights, or is not known", printed(*init)));
  }
  return check_known(config, file);
}

// Of what target_modules lists by name.
Result<void> check_targets(const Json& config, const std::string& file) {
  const Json* targets = config.find("target_modules");
  if (targets == nullptr || !targets->is_array()) return {};
  for (const Json& target : targets->as_array()) {
    if (!target.is_string()) continue;  // its reader says so
    const std::string_view name = target.as_string();
    const std::string_view leaf = name.substr(name.rfind('.') + 1);
    for (const std::string_view refused : {"lm_head", "embed_tokens", "router"}) {
      if (leaf != refused) continue;
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: target_modules: {} has no adapter here", file, leaf)};
    }
  }
  return {};
}

}  // namespace

Error AdapterConfig::bad(const std::string& what) const {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", file_, what)};
}

Result<AdapterConfig> AdapterConfig::parse(std::string_view text, const std::string& file) {
  AdapterConfig made;
  made.file_ = file;
  Result<Json> json = Json::parse(text);
  if (!json.ok()) return made.bad("no JSON: " + json.error().message);
  if (!json->is_object()) return made.bad(fmt::format("is {}, no object", json->kind_name()));
  TRY(check_refused(*json, file));
  TRY(check_targets(*json, file));
  TRY(made.read(*json));
  return made;
}

// An activated LoRA's: the text that it acts from.
Result<void> AdapterConfig::read_invocation(const Json& config) {
  constexpr const char* kField = "alora_invocation_tokens";
  const Json* tokens = config.find(kField);
  if (is_off(tokens)) return {};
  if (!tokens->is_array() || tokens->as_array().size() > kInvocationTokensMax) {
    return bad(fmt::format("{} is {}, no list of {} tokens at most", kField, printed(*tokens),
                           kInvocationTokensMax));
  }
  for (const Json& token : tokens->as_array()) {
    if (!token.is_integer() || token.as_integer() < 0 || token.as_integer() > INT32_MAX) {
      return bad(fmt::format("{} holds {}, no token's number", kField, printed(token)));
    }
    invocation_.push_back(static_cast<TokenId>(token.as_integer()));
  }
  return {};
}

Result<void> AdapterConfig::read(const Json& config) {
  TRY(read_numbers(config));
  TRY(read_invocation(config));
  TRY(read_layers(config));
  Result<ModuleTargets> targets = ModuleTargets::read(config);
  if (!targets.ok()) return bad(targets.error().message);
  targets_ = *std::move(targets);
  TRY_ASSIGN(rank_pattern_, read_patterns(config, "rank_pattern"));
  for (const double rank : rank_pattern_.values()) {
    if (!(rank >= 1 && rank <= kRankMax) || rank != std::floor(rank)) {
      return bad(
          fmt::format("rank_pattern: a rank is a whole number of 1 to {}, not {}", kRankMax, rank));
    }
  }
  TRY_ASSIGN(alpha_pattern_, read_patterns(config, "alpha_pattern"));
  for (const double alpha : alpha_pattern_.values()) {
    if (!(alpha > 0)) return bad(fmt::format("alpha_pattern: {} is not above 0", alpha));
  }
  const std::string version = config.string("peft_version").value_or("");
  may_exchange_ = version == "0.19" || version.starts_with("0.19.");
  return {};
}

Result<void> AdapterConfig::read_numbers(const Json& config) {
  const std::optional<int64_t> rank = config.integer("r");
  if (!rank || *rank < 1 || *rank > kRankMax) {
    const Json* given = config.find("r");
    return bad(fmt::format("r, the rank, is {}; it must be a whole number of 1 to {}",
                           given == nullptr ? "missing" : printed(*given), kRankMax));
  }
  rank_ = static_cast<int>(*rank);
  const std::optional<double> alpha = config.number("lora_alpha");
  if (!alpha || !(*alpha > 0) || !std::isfinite(*alpha)) {
    const Json* given = config.find("lora_alpha");
    return bad(fmt::format("lora_alpha is {}; it must be a number above 0",
                           given == nullptr ? "missing" : printed(*given)));
  }
  alpha_ = *alpha;
  const Json* rslora = config.find("use_rslora");
  if (rslora != nullptr && !rslora->is_null() && !rslora->is_bool()) {
    return bad(fmt::format("use_rslora is {}, not true or false", rslora->kind_name()));
  }
  rslora_ = config.boolean("use_rslora").value_or(false);
  return {};
}

Result<void> AdapterConfig::read_layers(const Json& config) {
  const Json* layers = config.find("layers_to_transform");
  if (layers == nullptr || layers->is_null()) return {};
  const Json::Array one = {*layers};
  const Json::Array& listed = layers->is_array() ? layers->as_array() : one;
  if (listed.size() > kLayersMax) return bad("layers_to_transform has too many layers");
  for (const Json& layer : listed) {
    if (!layer.is_integer() || layer.as_integer() < 0 || layer.as_integer() >= kLayersMax) {
      return bad(fmt::format("layers_to_transform holds {}, no number of a layer", printed(layer)));
    }
    layers_.push_back(static_cast<int>(layer.as_integer()));
  }
  std::sort(layers_.begin(), layers_.end());
  return {};
}

Result<ModulePatterns> AdapterConfig::read_patterns(const Json& config, const char* field) const {
  const Json* table = config.find(field);
  if (table == nullptr || table->is_null()) return ModulePatterns();
  if (!table->is_object())
    return bad(fmt::format("{} is {}, no object", field, table->kind_name()));
  Result<ModulePatterns> patterns = ModulePatterns::compile(*table, field);
  if (!patterns.ok()) return bad(patterns.error().message);
  return patterns;
}

Result<AdapterConfig::Scaling> AdapterConfig::scaling(std::span<const std::string> paths) const {
  const Result<std::optional<double>> rank = rank_pattern_.find(paths);
  if (!rank.ok()) return bad(rank.error().message);
  const Result<std::optional<double>> alpha = alpha_pattern_.find(paths);
  if (!alpha.ok()) return bad(alpha.error().message);
  Scaling scaling{.rank = rank->has_value() ? static_cast<int>(**rank) : rank_};
  const double numerator = alpha->value_or(alpha_);
  const double root = rslora_ ? std::sqrt(scaling.rank) : scaling.rank;
  scaling.scale = static_cast<float>(numerator / root);
  if (!std::isfinite(scaling.scale) || scaling.scale == 0) {
    return bad(fmt::format("lora_alpha of {} is beyond a float", numerator));
  }
  return scaling;
}

Result<void> AdapterConfig::check_layers(int count) const {
  if (layers_.empty() || layers_.back() < count) return {};
  return bad(
      fmt::format("layers_to_transform: the base has no layer {}, only {}", layers_.back(), count));
}

Result<std::optional<std::string>> AdapterConfig::contradiction(std::span<const std::string> paths,
                                                                bool is_parameter) const {
  Result<std::optional<std::string>> found = targets_.contradiction(paths, is_parameter);
  if (!found.ok()) return bad(found.error().message);
  return found;
}

bool AdapterConfig::has_layer(int layer) const {
  return layers_.empty() || std::binary_search(layers_.begin(), layers_.end(), layer);
}

}  // namespace pelton::lora
