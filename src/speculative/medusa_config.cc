#include "speculative/medusa_config.h"

#include <fmt/format.h>

#include "families/config_fields.h"

namespace pelton::speculative {
namespace {

using families::ConfigFields;

constexpr int kHeadsMax = 64;  // as many guesses as a row may have
constexpr int kBlocksMax = 16;

// FasterDecoding's name of a number, or vLLM's.
Result<int> number_of(const ConfigFields& fields, const char* name, const char* of_vllm, int most) {
  const char* const found =
      fields.find(name) == nullptr && fields.find(of_vllm) != nullptr ? of_vllm : name;
  return fields.integer(found, {1, most});
}

// Not said: the target's. Another: heads of another model.
Result<void> check_size(const ConfigFields& fields, const char* key, int of_target) {
  TRY_ASSIGN(const int found, fields.integer_or(key, of_target, {1, families::kVocabMax}));
  if (found == of_target) return {};
  Error error = fields.bad(key, fmt::format("is {}, the target's {}; give heads that were trained "
                                            "for this model",
                                            found, of_target));
  error.code = ErrorCode::kInvalidArgument;
  return error;
}

Result<MedusaConfig::Output> read_output(const ConfigFields& fields) {
  TRY_ASSIGN(const bool shared, fields.boolean("shared_lm_head", false));
  TRY_ASSIGN(const bool one, fields.boolean("original_lm_head", false));
  if (shared) return MedusaConfig::Output::kTarget;
  return one ? MedusaConfig::Output::kOne : MedusaConfig::Output::kOwn;
}

Result<void> check_json(const Json& json, const std::string& file) {
  if (json.is_object()) return {};
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: must be an object", file)};
}

}  // namespace

bool is_medusa_config(const Json& config) {
  if (!config.is_object()) return false;
  const Json* const heads = config.find("medusa_num_heads");
  if (heads != nullptr && !heads->is_null()) return true;
  if (config.string("model_type") == "medusa") return true;
  const Json* const names = config.find("architectures");
  return names != nullptr && names->is_array() && names->as_array().size() == 1 &&
         names->as_array()[0] == Json("MedusaModel");
}

Result<int> medusa_head_count(const Json& json, const std::string& file) {
  TRY(check_json(json, file));
  return number_of(ConfigFields(json, file), "medusa_num_heads", "num_heads", kHeadsMax);
}

Result<MedusaConfig> parse_medusa_config(const Json& json, const families::ModelConfig& target,
                                         const std::string& file) {
  TRY(check_json(json, file));
  const ConfigFields fields(json, file);
  if (!is_medusa_config(json)) {
    return fields.unsupported("architectures",
                              "is not [\"MedusaModel\"], and there is no medusa_num_heads");
  }
  MedusaConfig config{.hidden_size = target.hidden_size, .vocab_size = target.vocab_size};
  TRY(check_size(fields, "hidden_size", target.hidden_size));
  TRY(check_size(fields, "vocab_size", target.vocab_size));
  TRY_ASSIGN(config.heads, number_of(fields, "medusa_num_heads", "num_heads", kHeadsMax));
  const bool says_blocks =
      fields.find("medusa_num_layers") != nullptr || fields.find("num_hidden_layers") != nullptr;
  if (says_blocks) {
    TRY_ASSIGN(config.blocks,
               number_of(fields, "medusa_num_layers", "num_hidden_layers", kBlocksMax));
  }
  TRY_ASSIGN(config.output, read_output(fields));
  TRY_ASSIGN(config.draft_vocab_size,
             fields.integer_or("truncated_vocab_size", target.vocab_size, {1, target.vocab_size}));
  const bool is_cut = config.draft_vocab_size < target.vocab_size;
  if (is_cut && config.output == MedusaConfig::Output::kTarget) {
    return fields.unsupported("truncated_vocab_size",
                              "is less than vocab_size, with the target's lm_head; supported: "
                              "with an lm_head of the heads' own");
  }
  if (fields.find("medusa_fc_bias") != nullptr) {
    TRY_ASSIGN(const bool bias, fields.boolean("medusa_fc_bias", false));
    config.bias = bias ? MedusaConfig::Bias::kAdded : MedusaConfig::Bias::kNone;
  }
  TRY(fields.only("hidden_act", Json("silu")));
  TRY(fields.refuse_unread_arithmetic());
  return config;
}

}  // namespace pelton::speculative
