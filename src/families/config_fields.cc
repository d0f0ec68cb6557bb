#include "families/config_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "families/model_config.h"

namespace pelton::families {
namespace {

constexpr size_t kEosTokensMax = 64;

constexpr std::pair<std::string_view, RopeScaling> kScalings[] = {
    {"default", RopeScaling::kNone},
    {"linear", RopeScaling::kLinear},
    {"llama3", RopeScaling::kLlama3},
    {"yarn", RopeScaling::kYarn},
    {"longrope", RopeScaling::kLongrope},
    // It begins beyond max_position_embeddings, where nothing is served.
    {"dynamic", RopeScaling::kNone},
};

Result<RopeScaling> scaling_of(const ConfigFields& fields, const std::string& type) {
  std::string known;
  for (const auto& [name, scaling] : kScalings) {
    if (name == type) return scaling;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", name);
  }
  return fields.unsupported("rope_type",
                            fmt::format("is {}; supported: {}", shown(Json(type)), known));
}

// How much attention's logits grow with the context: arXiv 2309.00071, equation 22.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Result<void> read_yarn(const ConfigFields& fields, RopeConfig& rope) {
  TRY_ASSIGN(rope.beta_fast, fields.number("beta_fast", 32.0, 1e-6, 1e6));
  TRY_ASSIGN(rope.beta_slow, fields.number("beta_slow", 1.0, 1e-6, 1e6));
  // transformers rounds the ramp's bounds unless configured not to.
  TRY_ASSIGN(rope.truncate, fields.boolean("truncate", true));
  if (rope.beta_slow >= rope.beta_fast) {
    return fields.bad("beta_slow", fmt::format("({}) must be less than beta_fast ({})",
                                               rope.beta_slow, rope.beta_fast));
  }
  TRY_ASSIGN(const double mscale, fields.number("mscale", 0.0, 0.0, 1e3));
  TRY_ASSIGN(const double mscale_all, fields.number("mscale_all_dim", 0.0, 0.0, 1e3));
  const double inferred = mscale > 0 && mscale_all > 0 ? yarn_mscale(rope.factor, mscale) /
                                                             yarn_mscale(rope.factor, mscale_all)
                                                       : yarn_mscale(rope.factor, 1.0);
  rope.mscale_all_dim = mscale_all;
  // As vLLM and llama.cpp have it: R1-0528-Qwen3-8B's 0.878 takes back what its factor of 4 gives.
  TRY_ASSIGN(const double attn_factor, fields.number("attn_factor", 1.0, 1e-3, 1e3));
  TRY_ASSIGN(rope.attention_factor,
             fields.number("attention_factor", inferred * attn_factor, 1e-3, 1e3));
  return {};
}

Result<void> read_llama3(const ConfigFields& fields, RopeConfig& rope) {
  TRY_ASSIGN(rope.low_freq_factor, fields.number("low_freq_factor", 1.0, 1e-6, 1e6));
  TRY_ASSIGN(rope.high_freq_factor, fields.number("high_freq_factor", 4.0, 1e-6, 1e6));
  if (rope.low_freq_factor >= rope.high_freq_factor) {
    return fields.bad("low_freq_factor", fmt::format("({}) must be less than high_freq_factor ({})",
                                                     rope.low_freq_factor, rope.high_freq_factor));
  }
  return {};
}

// transformers' modeling_rope_utils.py, _compute_longrope_parameters: the long list where the
// model's context is longer than the one it was first trained with, whatever a text's length.
Result<void> read_longrope(const ConfigFields& fields, int context_max, RopeConfig& rope) {
  const double grown = context_max / rope.original_context;
  const bool is_long = grown > 1.0;
  TRY_ASSIGN(rope.factor, fields.number("factor", std::max(grown, 1.0), 1.0, 1e6));
  const double inferred =
      rope.factor <= 1.0 ? 1.0
                         : std::sqrt(1.0 + std::log(rope.factor) / std::log(rope.original_context));
  TRY_ASSIGN(rope.attention_factor, fields.number("attention_factor", inferred, 1e-3, 1e3));
  for (const char* key : {"short_factor", "long_factor"}) {
    const Json* list = fields.find(key);
    if (list == nullptr || !list->is_array() || list->as_array().size() > kHeadSizeMax) {
      return fields.bad(key, "is missing, or not a list of divisors");
    }
    if ((key[0] == 'l') != is_long) continue;
    for (const Json& divisor : list->as_array()) {
      if (!divisor.is_number() || !(divisor.as_number() > 0) || divisor.as_number() > 1e6) {
        return fields.bad(key, "has an element that is no number in (0, 1e6]");
      }
      rope.divisors.push_back(divisor.as_number());
    }
  }
  return {};
}

// What keys that change arithmetic are called, in the configurations of the published
// architectures; those with weights of their own are found by their tensors.
bool changes_arithmetic(std::string_view key) {
  constexpr std::string_view kStems[] = {
      "scal", "softcap", "multiplier", "activation", "_act", "clip", "rotary", "rope", "window",
      "alibi", "logit_", "temperature", "factor", "mscale", "section", "bias", "bidirectional",
      "parallel_", "residual", "position_embedding_type", "chunk", "kv_shared", "swiglu",
      "sandwich",
      // Which experts are chosen, and in which layers.
      "scoring_func", "n_group", "topk_group", "topk_method", "layer_freq", "first_k_dense",
      // Norms without weights or elsewhere; what attention sees, and what becomes of its output.
      "norm_type", "qk_norm", "qk_layernorm", "pre_norm", "sink", "local_attention", "global_attn",
      "output_gate", "index_topk", "use_mup", "layer_types", "norm_1p", "zero_centered",
      "norm_after", "post_norm", "softmax1", "lambda_init", "num_loops", "num_recurrent",
      "decoder_architecture", "grouped_topk"};
  // Of training alone, or of what is written elsewhere.
  constexpr std::string_view kHarmless[] = {
      "output_router_logits", "router_z_loss_coef", "max_window_layers",      "activation_scheme",
      "initializer_factor",   "pretraining_tp",     "chunk_size_feed_forward"};
  if (std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) {
    return false;
  }
  if (key.starts_with("mup_")) return true;  // and not "warmup_steps"
  return std::any_of(std::begin(kStems), std::end(kStems), [&](std::string_view stem) {
    return key.find(stem) != std::string_view::npos;
  });
}

// What norms of other architectures call their epsilon.
bool is_epsilon(std::string_view key) {
  return key.find("norm") != std::string_view::npos &&
         (key.ends_with("eps") || key.ends_with("epsilon"));
}

bool says_no(std::string_view key, const Json& value) {
  if (value.is_null() || value == Json(false)) return true;
  if (value.is_array()) {
    return std::ranges::all_of(value.as_array(), [&](const Json& element) {
      return key == "layer_types" && element == Json("full_attention");
    });
  }
  if (value.is_object()) return value.as_object().empty();
  return value.is_number() && value.as_number() == 1.0;
}

}  // namespace

std::string shown(const Json& value) {
  const std::string text = value.dump();
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

ConfigFields::ConfigFields(const Json& json, std::string file, std::string prefix)
    : json_(json), file_(std::move(file)), prefix_(std::move(prefix)) {}

Error ConfigFields::bad(std::string_view key, const std::string& what) const {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}{} {}", file_, prefix_, key, what),
               prefix_ + std::string(key)};
}

Error ConfigFields::unsupported(std::string_view key, const std::string& what) const {
  Error error = bad(key, what);
  error.code = ErrorCode::kUnsupported;
  return error;
}

const Json* ConfigFields::find(std::string_view key) const {
  read_.emplace(key);
  const Json* found = json_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool ConfigFields::is_null(std::string_view key) const {
  read_.emplace(key);
  const Json* found = json_.find(key);
  return found != nullptr && found->is_null();
}

ConfigFields ConfigFields::inner(const Json& object, std::string_view key) const {
  return {object, file_, fmt::format("{}{}.", prefix_, key)};
}

Result<int> ConfigFields::integer(std::string_view key, Range range) const {
  const Json* found = find(key);
  if (found == nullptr) return bad(key, "is missing");
  const std::optional<int64_t> value = json_.integer(key);
  if (!value || *value < range.min || *value > range.max) {
    return bad(key, fmt::format("must be an integer in [{}, {}], found {}", range.min, range.max,
                                shown(*found)));
  }
  return static_cast<int>(*value);
}

Result<int> ConfigFields::integer_or(std::string_view key, int fallback, Range range) const {
  if (find(key) == nullptr) return fallback;
  return integer(key, range);
}

Result<int> ConfigFields::integer_or_alias(std::string_view key, std::string_view alias,
                                           Range range) const {
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

Result<double> ConfigFields::number(std::string_view key, double fallback, double min,
                                    double max) const {
  const Json* found = find(key);
  if (found == nullptr) return fallback;
  if (!found->is_number() || !(found->as_number() >= min) || !(found->as_number() <= max)) {
    return bad(key, fmt::format("must be a number in [{}, {}], found {}", min, max, shown(*found)));
  }
  return found->as_number();
}

Result<bool> ConfigFields::boolean(std::string_view key, bool fallback) const {
  const Json* found = find(key);
  if (found == nullptr) return fallback;
  if (!found->is_bool()) return bad(key, "must be a boolean, found " + shown(*found));
  return found->as_bool();
}

Result<void> ConfigFields::only(std::string_view key, const Json& supported) const {
  const Json* found = find(key);
  if (found == nullptr || *found == supported) return {};
  return unsupported(key, fmt::format("is {}; supported: {}", shown(*found), shown(supported)));
}

Result<void> ConfigFields::not_set(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr || says_no(key, *value)) return {};
  return unsupported(key, fmt::format("is {}; supported: not there", shown(*value)));
}

Result<void> ConfigFields::refuse_unread_arithmetic() const {
  // Beside the name that is read another one means nothing.
  const Json* const epsilon = json_.find("rms_norm_eps");
  const bool has_epsilon = epsilon != nullptr && !epsilon->is_null();
  for (const Json::Member& member : json_.as_object()) {
    if (read_.contains(member.key)) continue;
    const bool is_other_epsilon = !has_epsilon && is_epsilon(member.key) && !member.value.is_null();
    const bool changes = changes_arithmetic(member.key) && !says_no(member.key, member.value);
    if (!changes && !is_other_epsilon) continue;
    return unsupported(member.key,
                       fmt::format("is {}, which this family does not compute; supported: not "
                                   "there, or null",
                                   shown(member.value)));
  }
  return {};
}

Result<void> read_sizes(const ConfigFields& fields, ModelConfig& config) {
  TRY_ASSIGN(const int layers, fields.integer("num_hidden_layers", {1, kLayersMax}));
  config.layers.resize(static_cast<size_t>(layers));
  TRY_ASSIGN(config.hidden_size, fields.integer("hidden_size", {1, kHiddenMax}));
  TRY_ASSIGN(config.head_count, fields.integer("num_attention_heads", {1, kHeadsMax}));
  TRY_ASSIGN(config.kv_head_count,
             fields.integer_or("num_key_value_heads", config.head_count, {1, config.head_count}));
  const bool is_given = config.head_size > 0;
  if (!is_given) {
    TRY_ASSIGN(
        config.head_size,
        fields.integer_or("head_dim", config.hidden_size / config.head_count, {2, kHeadSizeMax}));
  }
  TRY_ASSIGN(config.vocab_size, fields.integer("vocab_size", {1, kVocabMax}));
  TRY_ASSIGN(config.context_max, fields.integer("max_position_embeddings", {1, kContextMax}));
  if (config.head_count % config.kv_head_count != 0) {
    return fields.bad("num_attention_heads",
                      fmt::format("({}) must be a multiple of num_key_value_heads ({})",
                                  config.head_count, config.kv_head_count));
  }
  config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_size));
  if (is_given) return {};
  if (config.head_size < 2 || config.head_size > kHeadSizeMax || config.head_size % 2 != 0) {
    return fields.bad("head_dim", fmt::format("must be even and at most {}, found {}", kHeadSizeMax,
                                              config.head_size));
  }
  return {};
}

Result<void> read_layer_types(const ConfigFields& fields, ModelConfig& config) {
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return {};
  const size_t layers = config.layers.size();
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
    config.layers[i].attention = sliding ? AttentionKind::kSliding : AttentionKind::kFull;
  }
  return {};
}

Result<void> read_rope_scaling(const ConfigFields& scaling, int context_max, RopeConfig& rope) {
  TRY_ASSIGN(rope.theta, scaling.number("rope_theta", rope.theta, 1.0 + 1e-6, 1e12));
  const Json* type = scaling.find("rope_type");
  const Json* older = scaling.find("type");
  // rope_parameters may hold the base alone.
  if (type == nullptr && older == nullptr) return scaling.refuse_unread_arithmetic();
  if (type != nullptr && older != nullptr && *type != *older) {
    return scaling.bad("rope_type", fmt::format("is {}, but type, its older name, is {}",
                                                shown(*type), shown(*older)));
  }
  if (type == nullptr) type = older;
  TRY_ASSIGN(rope.scaling,
             scaling_of(scaling, type != nullptr && type->is_string() ? type->as_string() : ""));
  if (rope.scaling == RopeScaling::kNone) return {};
  const bool by_list = rope.scaling == RopeScaling::kLongrope;
  if (!by_list && scaling.find("factor") == nullptr) return scaling.bad("factor", "is missing");
  TRY_ASSIGN(rope.factor, scaling.number("factor", 1.0, 1.0, 1e6));
  const double original = rope.original_context > 0 ? rope.original_context : context_max;
  TRY_ASSIGN(rope.original_context, scaling.number("original_max_position_embeddings", original,
                                                   1.0, static_cast<double>(kContextMax)));
  if (rope.scaling == RopeScaling::kYarn) TRY(read_yarn(scaling, rope));
  if (rope.scaling == RopeScaling::kLlama3) TRY(read_llama3(scaling, rope));
  if (by_list) TRY(read_longrope(scaling, context_max, rope));
  return scaling.refuse_unread_arithmetic();
}

// partial_rotary_factor, here or with the scaling: the part of each head that turns.
Result<void> read_rotary_part(const ConfigFields& fields, const ConfigFields& scaling,
                              ModelConfig& config) {
  TRY_ASSIGN(double part, fields.number("partial_rotary_factor", 1.0, 1e-3, 1.0));
  TRY_ASSIGN(part, scaling.number("partial_rotary_factor", part, 1e-3, 1.0));
  if (part == 1.0) return {};
  const auto elements = static_cast<int>(part * config.head_size);
  if (part > 0.0 && part < 1.0 && elements >= 2 && elements % 2 == 0) {
    config.rotary_part = elements;
    return {};
  }
  return fields.bad(
      "partial_rotary_factor",
      fmt::format("({}) of heads of {} is no even number of elements", part, config.head_size));
}

// Newer files say in rope_parameters what older ones did in rope_scaling; whoever adds the older
// one to a newer file, as some models' cards advise, means it. Of two words nobody can know which.
Result<void> check_one_rope(const ConfigFields& fields, const Json* parameters,
                            const Json* scaling) {
  const bool are_both = parameters != nullptr && parameters->is_object() && scaling != nullptr &&
                        scaling->is_object();
  if (!are_both) return {};
  for (const Json::Member& member : scaling->as_object()) {
    const Json* other = parameters->find(member.key);
    if (other == nullptr && member.key == "type") other = parameters->find("rope_type");
    if (other != nullptr && *other == member.value) continue;
    return fields.bad("rope_scaling", fmt::format("says {} {}, and rope_parameters does not: keep "
                                                  "one of the two",
                                                  member.key, shown(member.value)));
  }
  return {};
}

Result<void> read_rope(const ConfigFields& fields, ModelConfig& config) {
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = fields.find("rope_scaling");
  TRY(check_one_rope(fields, parameters, scaling));
  const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  if (parameters != nullptr) scaling = parameters;
  TRY_ASSIGN(config.rope.theta, fields.number("rope_theta", config.rope.theta, 1.0 + 1e-6, 1e12));
  const Json none = Json::Object{};
  if (scaling != nullptr && !scaling->is_object()) {
    return fields.bad(name, fmt::format("must be an object, found {}", scaling->kind_name()));
  }
  const ConfigFields inner = fields.inner(scaling != nullptr ? *scaling : none, name);
  TRY(read_rotary_part(fields, inner, config));
  if (scaling == nullptr) return {};
  // Phi-3's files say it beside the scaling.
  TRY_ASSIGN(config.rope.original_context,
             fields.number("original_max_position_embeddings", config.rope.original_context, 0.0,
                           static_cast<double>(kContextMax)));
  TRY(read_rope_scaling(inner, config.context_max, config.rope));
  const size_t divisors = config.rope.divisors.size();
  if (divisors == 0 || divisors == static_cast<size_t>(config.rotary_size() / 2)) return {};
  return fields.bad(name, fmt::format("has {} divisors, expected one for each of {} pairs",
                                      divisors, config.rotary_size() / 2));
}

// What is left in 16 bits must be what layers expect in 16 bits: the head, routers.
Result<void> check_left_out(const ConfigFields& fields, std::string_view key) {
  const Json* list = fields.find(key);
  if (list == nullptr) return {};
  if (!list->is_array()) return fields.bad(key, "must be an array, found " + shown(*list));
  for (const Json& name : list->as_array()) {
    const std::string text = name.is_string() ? name.as_string() : name.dump();
    const bool known = text == "lm_head" || text.find("gate") != std::string::npos ||
                       text.find("router") != std::string::npos || text.ends_with("norm") ||
                       text.find("vision") != std::string::npos ||
                       text.find("multi_modal") != std::string::npos;
    const bool of_mlp = text.find("gate_proj") != std::string::npos;
    if (!known || of_mlp) {
      return fields.unsupported(key, fmt::format("leaves out {}; supported: lm_head, routers, "
                                                 "other modalities",
                                                 shown(name)));
    }
  }
  return {};
}

Result<void> read_group_size(const ConfigFields& fields, ModelConfig& config) {
  const Json* found = fields.find("group_size");
  if (found != nullptr && *found == Json(-1)) {
    config.int_weights.group_size = 0;
    return {};
  }
  TRY_ASSIGN(config.int_weights.group_size, fields.integer_or("group_size", 128, {32, kHiddenMax}));
  return {};
}

Result<void> read_gptq(const ConfigFields& fields, ModelConfig& config) {
  IntWeights& weights = config.int_weights;
  TRY_ASSIGN(weights.bits, fields.integer("bits", {2, 8}));
  TRY_ASSIGN(weights.symmetric, fields.boolean("sym", true));
  TRY(fields.not_set("dynamic"));
  TRY(fields.not_set("lm_head"));
  if (weights.bits != 4 && !(weights.bits == 8 && weights.symmetric)) {
    return fields.unsupported(
        "bits", fmt::format("is {}; supported: 4, and 8 where sym is true", weights.bits));
  }
  TRY(read_group_size(fields, config));
  TRY_ASSIGN(weights.reordered, fields.boolean("desc_act", false));
  weights.reordered = weights.reordered && weights.group_size > 0;
  const char* const key =
      fields.find("checkpoint_format") != nullptr ? "checkpoint_format" : "format";
  const Json* format = fields.find(key);
  weights.zeros_minus_one = format == nullptr || *format == Json("gptq");
  if (!weights.zeros_minus_one) TRY(fields.only(key, Json("gptq_v2")));
  config.quantization = WeightQuantization::kGptq;
  return {};
}

Result<void> read_awq(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("bits", Json(4)));
  const Json* version = fields.find("version");
  const bool is_gemm = version != nullptr && (*version == Json("GEMM") || *version == Json("Gemm"));
  if (!is_gemm) TRY(fields.only("version", Json("gemm")));
  TRY(fields.only("zero_point", Json(true)));
  TRY(check_left_out(fields, "modules_to_not_convert"));
  TRY(read_group_size(fields, config));
  config.quantization = WeightQuantization::kAwq;
  return {};
}

Result<void> read_packed_integers(const ConfigFields& fields, const ConfigFields& weights,
                                  ModelConfig& config) {
  IntWeights& integers = config.int_weights;
  const Json* format = fields.find("format");
  integers.in_bytes = format != nullptr && *format == Json("int-quantized");
  if (!integers.in_bytes) TRY(fields.only("format", Json("pack-quantized")));
  TRY_ASSIGN(integers.bits, weights.integer("num_bits", {2, 8}));
  // "weight" and "static" say how the codes were found; the groups stay in order.
  const Json* order = weights.find("actorder");
  const bool in_order = order == nullptr || *order == Json(false) || *order == Json("weight") ||
                        *order == Json("static");
  if (!in_order) TRY(weights.only("actorder", Json(nullptr)));
  TRY_ASSIGN(integers.symmetric, weights.boolean("symmetric", true));
  const bool is_byte = integers.bits == 8 && integers.symmetric;
  if (!is_byte && (integers.bits != 4 || integers.in_bytes)) {
    return weights.unsupported(
        "num_bits",
        fmt::format("is {}; supported: 4 in words, and 8 where symmetric is true", integers.bits));
  }
  TRY(read_group_size(weights, config));
  const Json* strategy = weights.find("strategy");
  if (strategy != nullptr && *strategy == Json("channel")) {
    integers.group_size = 0;
  } else {
    TRY(weights.only("strategy", Json("group")));
  }
  config.quantization = WeightQuantization::kCompressedInts;
  return {};
}

// vLLM's compressed-tensors: one group of linear layers, E4M3 with a scale for each row, each
// block of 128 x 128 or one, or integers.
Result<void> read_compressed_tensors(const ConfigFields& fields, ModelConfig& config) {
  TRY(check_left_out(fields, "ignore"));
  TRY(fields.not_set("transform_config"));
  if (const Json* sparsity = fields.find("sparsity_config"); sparsity != nullptr) {
    if (!sparsity->is_object()) return fields.bad("sparsity_config", "must be an object");
    TRY(fields.inner(*sparsity, "sparsity_config").only("format", Json("dense")));
  }
  const Json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->as_object().size() != 1) {
    return fields.unsupported("config_groups", "is missing or not one group; supported: one");
  }
  const Json* weights = groups->as_object()[0].value.find("weights");
  if (weights == nullptr || !weights->is_object()) {
    return fields.bad("config_groups", "has no weights in its group");
  }
  const ConfigFields inner = fields.inner(*weights, "config_groups.weights");
  const Json* type = inner.find("type");
  if (type != nullptr && *type == Json("int")) return read_packed_integers(fields, inner, config);
  TRY(fields.only("format", Json("float-quantized")));
  TRY(inner.only("type", Json("float")));
  TRY(inner.only("num_bits", Json(8)));
  const Json* strategy = inner.find("strategy");
  if (strategy != nullptr && *strategy == Json("channel")) {
    config.quantization = WeightQuantization::kF8Rows;
    return {};
  }
  if (strategy != nullptr && *strategy == Json("block")) {
    TRY(inner.only("block_structure", Json(Json::Array{128, 128})));
    config.quantization = WeightQuantization::kF8Blocks;
    return {};
  }
  TRY(inner.only("strategy", Json("tensor")));
  config.quantization = WeightQuantization::kF8Tensor;
  return {};
}

Result<void> read_quantization(const ConfigFields& fields, ModelConfig& config) {
  const Json* found = fields.find("quantization_config");
  if (found == nullptr) return {};
  constexpr std::string_view kName = "quantization_config";
  if (!found->is_object()) {
    return fields.bad(kName, fmt::format("must be an object, found {}", found->kind_name()));
  }
  const ConfigFields inner = fields.inner(*found, kName);
  config.expert_bits = config.other_bits = 8;
  const Json* method = inner.find("quant_method");
  if (method != nullptr && *method == Json("compressed-tensors")) {
    return read_compressed_tensors(inner, config);
  }
  if (method != nullptr && *method == Json("gptq")) return read_gptq(inner, config);
  if (method != nullptr && *method == Json("awq")) return read_awq(inner, config);
  if (method == nullptr || *method != Json("fp8")) {
    return inner.unsupported(
        "quant_method", fmt::format("is {}; supported: \"fp8\", \"gptq\", \"awq\", "
                                    "\"compressed-tensors\"",
                                    method != nullptr ? shown(*method) : std::string("missing")));
  }
  TRY(inner.only("fmt", Json("e4m3")));
  TRY(check_left_out(inner, "modules_to_not_convert"));
  TRY(check_left_out(inner, "ignored_layers"));
  const bool blocks = inner.find("weight_block_size") != nullptr;
  TRY(inner.only("weight_block_size", Json(Json::Array{128, 128})));
  config.quantization = blocks ? WeightQuantization::kF8Blocks : WeightQuantization::kF8Tensor;
  return {};
}

Result<void> read_decoder(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("hidden_act", Json("silu")));
  TRY(read_quantization(fields, config));
  TRY(read_sizes(fields, config));
  TRY_ASSIGN(config.intermediate_size, fields.integer("intermediate_size", {1, kIntermediateMax}));
  TRY(read_rope(fields, config));
  TRY_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-6, 0.0, 1.0));
  TRY_ASSIGN(config.tied_head, fields.boolean("tie_word_embeddings", false));
  return {};
}

Result<void> read_attention_bias(const ConfigFields& fields, ModelConfig& config) {
  TRY_ASSIGN(config.qkv_bias, fields.boolean("attention_bias", false));
  config.attn_out_bias = config.qkv_bias;
  return {};
}

Result<void> read_experts(const ConfigFields& fields, const char* count_key, const char* width_key,
                          ModelConfig& config) {
  if (config.int_weights.reordered) {
    return fields.unsupported("quantization_config",
                              "has desc_act with groups, in a model with experts; supported: in "
                              "dense models");
  }
  TRY_ASSIGN(config.expert_count, fields.integer(count_key, {1, kExpertsMax}));
  TRY_ASSIGN(config.experts_per_token,
             fields.integer("num_experts_per_tok", {1, config.expert_count}));
  TRY_ASSIGN(config.expert_intermediate_size, fields.integer(width_key, {1, kIntermediateMax}));
  return {};
}

Result<void> read_sliding_window(const ConfigFields& fields, ModelConfig& config, int unsaid) {
  const int fallback = fields.is_null("sliding_window") ? 0 : unsaid;
  TRY_ASSIGN(config.sliding_window,
             fields.integer_or("sliding_window", fallback, {1, kContextMax}));
  if (config.sliding_window > 0) return {};
  for (LayerConfig& layer : config.layers) {
    if (layer.attention == AttentionKind::kSliding) layer.attention = AttentionKind::kFull;
  }
  return {};
}

Result<void> read_upper_window(const ConfigFields& fields, ModelConfig& config) {
  TRY_ASSIGN(const bool slides, fields.boolean("use_sliding_window", false));
  if (!slides) {
    fields.find("sliding_window");  // there, and without meaning
    return {};
  }
  if (fields.find("sliding_window") == nullptr) return fields.bad("sliding_window", "is missing");
  TRY_ASSIGN(const int first, fields.integer_or("max_window_layers", 28, {0, kLayersMax}));
  for (int i = first; i < config.layer_count(); ++i) {
    config.layers[static_cast<size_t>(i)].attention = AttentionKind::kSliding;
  }
  TRY(read_layer_types(fields, config));
  return read_sliding_window(fields, config);
}

Result<void> add_eos_tokens(const ConfigFields& fields, ModelConfig& config) {
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

}  // namespace pelton::families
