#include "speculative/eagle3_config.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "families/config_fields.h"
#include "families/unclamped_yarn.h"
#include "kernels/kv_quantization.h"

namespace pelton::speculative {
namespace {

using families::ConfigFields;

constexpr const char* kIds = "eagle_aux_hidden_state_layer_ids";

Result<void> check_architecture(const Json& json, const ConfigFields& fields) {
  if (is_eagle3_config(json)) return {};
  const Json* const names = json.find("architectures");
  return fields.unsupported("architectures",
                            fmt::format("is {}; supported: one of an EAGLE-3 head, as "
                                        "[\"LlamaForCausalLMEagle3\"]",
                                        names == nullptr ? "missing" : families::shown(*names)));
}

// Flags stand at the top level or in eagle_config.
class Flags {
 public:
  Flags(const ConfigFields& top, const ConfigFields* inner) : top_(top), inner_(inner) {}

  Result<bool> boolean(std::string_view key) const {
    TRY_ASSIGN(const bool outside, top_.boolean(key, false));
    if (inner_ == nullptr) return outside;
    return inner_->boolean(key, outside);
  }
  // The fields that hold the key, or null.
  const ConfigFields* with(std::string_view key) const {
    if (inner_ != nullptr && inner_->find(key) != nullptr) return inner_;
    return top_.find(key) != nullptr ? &top_ : nullptr;
  }

 private:
  const ConfigFields& top_;
  const ConfigFields* inner_;
};

Result<std::vector<int>> read_taps(const Flags& flags, int layers) {
  const ConfigFields* const fields = flags.with(kIds);
  if (fields == nullptr) return std::vector<int>{2, layers / 2, layers - 3};
  const Json& ids = *fields->find(kIds);
  const std::string wanted =
      fmt::format("must be {} integers from 0 to {}, the target's layers; found {}", kEagle3Taps,
                  layers, families::shown(ids));
  if (!ids.is_array() || ids.as_array().size() != kEagle3Taps) return fields->bad(kIds, wanted);
  std::vector<int> taps;
  for (const Json& id : ids.as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > layers) {
      return fields->bad(kIds, wanted);
    }
    taps.push_back(static_cast<int>(id.as_integer()));
  }
  return taps;
}

Result<void> check_sizes(const ConfigFields& fields, const Eagle3Config& config,
                         const families::ModelConfig& target) {
  const families::ModelConfig& layer = config.layer;
  const auto differs = [&](const char* key, int found, int expected) {
    Error error = fields.bad(key, fmt::format("is {}, the target's {}; give a head that was "
                                              "trained for this model",
                                              found, expected));
    error.code = ErrorCode::kInvalidArgument;
    return error;
  };
  if (layer.hidden_size != target.hidden_size) {
    return differs("hidden_size", layer.hidden_size, target.hidden_size);
  }
  if (layer.vocab_size != target.vocab_size) {
    return differs("vocab_size", layer.vocab_size, target.vocab_size);
  }
  if (layer.head_size % 2 != 0) {
    return fields.unsupported("head_dim",
                              fmt::format("is {}; supported: an even number", layer.head_size));
  }
  if (layer.head_size > kernels::kHeadSizeMax) {
    return fields.unsupported("head_dim", fmt::format("is {}; the kernels take at most {}",
                                                      layer.head_size, kernels::kHeadSizeMax));
  }
  return {};
}

bool same_rope(const families::RopeConfig& a, const families::RopeConfig& b) {
  if (a.theta != b.theta || a.scaling != b.scaling) return false;
  if (a.scaling == families::RopeScaling::kNone) return true;
  return a.factor == b.factor && a.original_context == b.original_context &&
         a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow && a.truncate == b.truncate &&
         a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
         a.attention_factor == b.attention_factor;
}

}  // namespace

bool is_eagle3_config(const Json& config) {
  const Json* const names = config.find("architectures");
  return names != nullptr && names->is_array() && names->as_array().size() == 1 &&
         names->as_array()[0].is_string() &&
         names->as_array()[0].as_string().find("Eagle3") != std::string::npos;
}

Result<Eagle3Config> parse_eagle3_config(const Json& json, const families::ModelConfig& target,
                                         const std::string& file) {
  if (!json.is_object()) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: must be an object", file)};
  }
  const ConfigFields fields(json, file);
  const Json* const inner_json = fields.find("eagle_config");
  if (inner_json != nullptr && !inner_json->is_object()) {
    return fields.bad("eagle_config", "must be an object, found " + families::shown(*inner_json));
  }
  std::optional<ConfigFields> inner;
  if (inner_json != nullptr) inner.emplace(fields.inner(*inner_json, "eagle_config"));
  const Flags flags(fields, inner ? &*inner : nullptr);

  Eagle3Config config;
  families::ModelConfig& layer = config.layer;
  TRY(check_architecture(json, fields));
  TRY(families::read_sizes(fields, layer));
  TRY(fields.only("num_hidden_layers", Json(1)));
  TRY_ASSIGN(layer.intermediate_size,
             fields.integer("intermediate_size", {1, families::kIntermediateMax}));
  TRY_ASSIGN(config.draft_vocab_size,
             fields.integer_or("draft_vocab_size", layer.vocab_size, {1, layer.vocab_size}));
  TRY_ASSIGN(layer.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-6, 0.0, 1.0));
  TRY(fields.only("hidden_act", Json("silu")));
  TRY(fields.only("mlp_bias", Json(false)));
  TRY(families::read_rope(fields, layer));
  TRY_ASSIGN(config.attention_bias, fields.boolean("attention_bias", false));
  TRY_ASSIGN(config.norm_before_fc, flags.boolean("norm_before_fc"));
  TRY_ASSIGN(config.fc_norm, flags.boolean("fc_norm"));
  TRY_ASSIGN(config.norm_before_residual, flags.boolean("norm_before_residual"));
  TRY_ASSIGN(config.norm_output, flags.boolean("norm_output"));
  TRY_ASSIGN(config.taps, read_taps(flags, target.layer_count()));
  for (const int tap : config.taps) {
    if (tap >= 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: without {} the taps of a target of {} layers would begin before "
                             "its first; give them",
                             file, kIds, target.layer_count())};
  }
  TRY(check_sizes(fields, config, target));
  TRY(fields.refuse_unread_arithmetic());
  config.turns_as_target = same_rope(layer.rope, target.rope);
  families::leave_ramp_uncut(layer.rope, layer.head_size);
  return config;
}

}  // namespace pelton::speculative
