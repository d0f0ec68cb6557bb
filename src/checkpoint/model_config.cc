#include "checkpoint/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/original_layout.h"

namespace pelton::checkpoint {
namespace {

// Beyond every model that exists, and small enough that the largest product of the sizes (elements
// of all experts of all layers: 2^10 * 2^12 * 2^21 * 2^16) fits in 63 bits.
constexpr int64_t kLayersMax = 1 << 10;
constexpr int64_t kExpertsMax = 1 << 12;
constexpr int64_t kHiddenMax = 1 << 16;
constexpr int64_t kIntermediateMax = 1 << 20;
constexpr int64_t kHeadsMax = 1 << 10;
constexpr int64_t kHeadSizeMax = 1 << 10;
constexpr int64_t kVocabMax = 1 << 22;
constexpr int64_t kContextMax = 1 << 24;
constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kEosTokensMax = 64;
constexpr int64_t kMxfp4Block = 32;

constexpr std::string_view kArchitecture = "GptOssForCausalLM";
constexpr std::string_view kModelType = "gpt_oss";

// A JSON value in a message: as it is written, but short.
std::string shown(const Json& value) {
  const std::string text = value.dump();
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

// Reads members of one JSON object and remembers how to name them in errors.
class Fields {
 public:
  Fields(const Json& json, std::string file, std::string prefix)
      : json_(json), file_(std::move(file)), prefix_(std::move(prefix)) {}

  Error bad(std::string_view key, const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}{} {}", file_, prefix_, key, what),
                 prefix_ + std::string(key)};
  }
  Error unsupported(std::string_view key, const std::string& what) const {
    Error error = bad(key, what);
    error.code = ErrorCode::kUnsupported;
    return error;
  }

  // Null if absent or JSON null.
  const Json* find(std::string_view key) const {
    const Json* found = json_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  struct Range {
    int64_t min;
    int64_t max;
  };
  Result<int> integer(std::string_view key, Range range) const {
    const Json* found = find(key);
    if (found == nullptr) return bad(key, "is missing");
    const std::optional<int64_t> value = json_.integer(key);
    if (!value || *value < range.min || *value > range.max) {
      return bad(key, fmt::format("must be an integer in [{}, {}], found {}", range.min, range.max,
                                  shown(*found)));
    }
    return static_cast<int>(*value);
  }
  // `alias` is another name of the same number; if both are there they must agree.
  Result<int> integer_or_alias(std::string_view key, std::string_view alias, Range range) const {
    if (find(key) == nullptr && find(alias) != nullptr) return integer(alias, range);
    TRY_ASSIGN(const int value, integer(key, range));
    if (find(alias) != nullptr) {
      TRY_ASSIGN(const int other, integer(alias, range));
      if (other != value) {
        return bad(key, fmt::format("is {}, but {}, its other name, is {}", value, alias, other));
      }
    }
    return value;
  }
  Result<double> number(std::string_view key, double fallback, double min, double max) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_number() || !(found->as_number() >= min) || !(found->as_number() <= max)) {
      return bad(key,
                 fmt::format("must be a number in [{}, {}], found {}", min, max, shown(*found)));
    }
    return found->as_number();
  }
  Result<bool> boolean(std::string_view key, bool fallback) const {
    const Json* found = find(key);
    if (found == nullptr) return fallback;
    if (!found->is_bool()) return bad(key, "must be a boolean, found " + shown(*found));
    return found->as_bool();
  }

 private:
  const Json& json_;
  const std::string file_;
  const std::string prefix_;
};

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

Result<void> read_architecture(const Json& json, const Fields& fields, ModelConfig& config) {
  std::string architectures;
  bool known = false;
  if (const Json* list = fields.find("architectures"); list != nullptr && list->is_array()) {
    for (const Json& name : list->as_array()) {
      known = known || (name.is_string() && name.as_string() == kArchitecture);
    }
    architectures = shown(*list);
  }
  const std::string model_type = json.string("model_type").value_or("");
  if (!known || model_type != kModelType) {
    return fields.unsupported(
        "architectures",
        fmt::format("is {} with model_type {}; supported: [\"{}\"] with model_type \"{}\"",
                    architectures.empty() ? "missing" : architectures, shown(model_type),
                    kArchitecture, kModelType));
  }
  config.architecture = kArchitecture;
  config.model_type = model_type;
  return {};
}

// What the architecture would allow and the shipped models do not use: silence would compute
// nonsense.
Result<void> refuse_variants(const Fields& fields) {
  TRY_ASSIGN(const bool biased, fields.boolean("attention_bias", true));
  if (!biased) return fields.unsupported("attention_bias", "is false; supported: true");
  TRY_ASSIGN(const bool tied, fields.boolean("tie_word_embeddings", false));
  if (tied) return fields.unsupported("tie_word_embeddings", "is true; supported: false");
  if (const Json* act = fields.find("hidden_act");
      act != nullptr && !(act->is_string() && act->as_string() == "silu")) {
    return fields.unsupported("hidden_act", "is " + shown(*act) + "; supported: \"silu\"");
  }
  const Json* quantization = fields.find("quantization_config");
  if (quantization == nullptr) return {};  // bf16 experts, as re-uploads have them
  const std::string method = quantization->string("quant_method").value_or("");
  if (method != "mxfp4") {
    return fields.unsupported(
        "quantization_config",
        fmt::format("has quant_method {}; supported: \"mxfp4\" (experts as published)",
                    shown(method)));
  }
  if (const Json* group = quantization->find("group_size");
      group != nullptr && quantization->integer("group_size") != kMxfp4Block) {
    return fields.unsupported("quantization_config.group_size",
                              fmt::format("is {}; supported: 32", shown(*group)));
  }
  return {};
}

Result<void> read_sizes(const Fields& fields, ModelConfig& config) {
  TRY_ASSIGN(config.layer_count, fields.integer("num_hidden_layers", {1, kLayersMax}));
  TRY_ASSIGN(config.hidden_size, fields.integer("hidden_size", {kMxfp4Block, kHiddenMax}));
  TRY_ASSIGN(config.intermediate_size,
             fields.integer("intermediate_size", {kMxfp4Block, kIntermediateMax}));
  TRY_ASSIGN(config.head_count, fields.integer("num_attention_heads", {1, kHeadsMax}));
  TRY_ASSIGN(config.kv_head_count, fields.integer("num_key_value_heads", {1, config.head_count}));
  TRY_ASSIGN(config.head_size, fields.integer("head_dim", {2, kHeadSizeMax}));
  TRY_ASSIGN(config.expert_count,
             fields.integer_or_alias("num_local_experts", "num_experts", {1, kExpertsMax}));
  TRY_ASSIGN(config.experts_per_token,
             fields.integer_or_alias("num_experts_per_tok", "experts_per_token",
                                     {1, config.expert_count}));
  TRY_ASSIGN(config.vocab_size, fields.integer("vocab_size", {1, kVocabMax}));
  TRY_ASSIGN(config.context_max, fields.integer("max_position_embeddings", {1, kContextMax}));
  TRY_ASSIGN(config.sliding_window, fields.integer("sliding_window", {1, kContextMax}));
  if (config.head_count % config.kv_head_count != 0) {
    return fields.bad("num_attention_heads",
                      fmt::format("({}) must be a multiple of num_key_value_heads ({})",
                                  config.head_count, config.kv_head_count));
  }
  if (config.head_size % 2 != 0) {
    return fields.bad("head_dim", fmt::format("must be even, found {}", config.head_size));
  }
  // An expert's weights come in MXFP4 blocks of 32 along both widths.
  for (const auto& [key, size] : {std::pair{"hidden_size", config.hidden_size},
                                  std::pair{"intermediate_size", config.intermediate_size}}) {
    if (size % kMxfp4Block != 0) {
      return fields.bad(key, fmt::format("must be a multiple of 32, found {}", size));
    }
  }
  return {};
}

Result<void> read_layer_types(const Fields& fields, ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.layer_count);
  const Json* types = fields.find("layer_types");
  if (types == nullptr) {
    for (size_t i = 0; i < layers; ++i) config.layer_is_sliding.push_back(i % 2 == 0);
    return {};
  }
  if (!types->is_array() || types->as_array().size() != layers) {
    return fields.bad("layer_types",
                      types->is_array()
                          ? fmt::format("has {} entries, but num_hidden_layers is {}",
                                        types->as_array().size(), layers)
                          : fmt::format("must be an array, found {}", types->kind_name()));
  }
  for (size_t i = 0; i < layers; ++i) {
    const Json& type = types->as_array()[i];
    const bool sliding = type == Json("sliding_attention");
    if (!sliding && type != Json("full_attention")) {
      return fields.unsupported(
          fmt::format("layer_types[{}]", i),
          fmt::format("is {}; supported: \"sliding_attention\", \"full_attention\"", shown(type)));
    }
    config.layer_is_sliding.push_back(sliding);
  }
  return {};
}

Result<void> read_yarn(const Json& scaling, const Fields& fields, ModelConfig& config) {
  YarnConfig& yarn = config.yarn;
  TRY_ASSIGN(yarn.factor, fields.number("factor", 1.0, 1.0, 1e6));
  TRY_ASSIGN(yarn.beta_fast, fields.number("beta_fast", 32.0, 1e-6, 1e6));
  TRY_ASSIGN(yarn.beta_slow, fields.number("beta_slow", 1.0, 1e-6, 1e6));
  TRY_ASSIGN(yarn.original_context,
             fields.number("original_max_position_embeddings", yarn.original_context, 1.0,
                           static_cast<double>(kContextMax)));
  // transformers rounds the ramp's bounds unless told not to; the published files say false.
  TRY_ASSIGN(yarn.truncate, fields.boolean("truncate", true));
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"}) {
    const Json* found = fields.find(key);
    if (found != nullptr) {
      return fields.unsupported(key, fmt::format("is {}; supported: absent", shown(*found)));
    }
  }
  if (scaling.find("factor") == nullptr) return fields.bad("factor", "is missing");
  if (yarn.beta_slow >= yarn.beta_fast) {
    return fields.bad("beta_slow", fmt::format("({}) must be less than beta_fast ({})",
                                               yarn.beta_slow, yarn.beta_fast));
  }
  return {};
}

// rope_theta and rope_scaling, or transformers 5's rope_parameters, which holds both.
Result<void> read_rope(const Fields& fields, const std::string& file, ModelConfig& config) {
  const char* name = fields.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  TRY_ASSIGN(config.rope_theta, fields.number("rope_theta", 150000.0, 1.0 + 1e-6, 1e12));
  TRY_ASSIGN(config.yarn.original_context, fields.number("initial_context_length", 4096.0, 1.0,
                                                         static_cast<double>(kContextMax)));
  const Json* scaling = fields.find(name);
  if (scaling == nullptr) return {};
  if (!scaling->is_object()) {
    return fields.bad(name, fmt::format("must be an object, found {}", scaling->kind_name()));
  }
  const Fields inner(*scaling, file, fmt::format("{}.", name));
  TRY_ASSIGN(config.rope_theta, inner.number("rope_theta", config.rope_theta, 1.0 + 1e-6, 1e12));
  const std::string type =
      scaling->string("rope_type").value_or(scaling->string("type").value_or(""));
  if (type == "default") return {};
  if (type != "yarn") {
    return inner.unsupported("rope_type",
                             fmt::format("is {}; supported: \"yarn\", \"default\"", shown(type)));
  }
  return read_yarn(*scaling, inner, config);
}

Result<void> add_eos_tokens(const Fields& fields, ModelConfig& config) {
  const Json* eos = fields.find("eos_token_id");
  if (eos == nullptr) return {};
  const Json::Array one = {*eos};
  const Json::Array& ids = eos->is_array() ? eos->as_array() : one;
  if (ids.size() > kEosTokensMax) {
    return fields.bad("eos_token_id",
                      fmt::format("has {} entries, more than {}", ids.size(), kEosTokensMax));
  }
  for (const Json& id : ids) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= config.vocab_size) {
      return fields.bad("eos_token_id",
                        fmt::format("must hold token ids below vocab_size ({}), found {}",
                                    config.vocab_size, shown(id)));
    }
    const auto token = static_cast<TokenId>(id.as_integer());
    std::vector<TokenId>& tokens = config.eos_tokens;
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
  return {};
}

Result<Json> parse_file(const std::string& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path, kConfigBytesMax));
  Result<Json> json = Json::parse(text);
  if (!json.ok()) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, json.error().message)};
  }
  return json;
}

}  // namespace

Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file) {
  ModelConfig parsed;
  TRY(refuse_duplicate_keys(config, file));
  const Fields fields(config, file, "");
  TRY(read_architecture(config, fields, parsed));
  TRY(refuse_variants(fields));
  TRY(read_sizes(fields, parsed));
  TRY(read_layer_types(fields, parsed));
  TRY(read_rope(fields, file, parsed));
  TRY_ASSIGN(parsed.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-5, 0.0, 1.0));
  TRY_ASSIGN(parsed.swiglu_limit, fields.number("swiglu_limit", 7.0, 1e-3, 1e6));
  TRY_ASSIGN(parsed.swiglu_alpha, fields.number("swiglu_alpha", 1.702, 1e-3, 1e3));
  TRY(add_eos_tokens(fields, parsed));
  if (generation != nullptr) {
    const std::string generation_file = file + " (with generation_config.json)";
    TRY(refuse_duplicate_keys(*generation, generation_file));
    TRY(add_eos_tokens(Fields(*generation, generation_file, ""), parsed));
  }
  return parsed;
}

Result<Json> read_config_json(const std::string& folder) {
  TRY_ASSIGN(Json config, parse_file(folder + "/config.json"));
  if (is_original_config(config)) config = config_from_original(config);
  return config;
}

Result<ModelConfig> read_model_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  TRY_ASSIGN(const Json config, read_config_json(folder));
  Result<Json> generation = parse_file(folder + "/generation_config.json");
  if (!generation.ok() && generation.error().code != ErrorCode::kNotFound) {
    return std::move(generation).error();
  }
  return parse_model_config(config, generation.ok() ? &generation.value() : nullptr, path);
}

}  // namespace pelton::checkpoint
