#include "checkpoint/gguf_names.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"
#include "families/registry.h"

namespace pelton::checkpoint {
namespace {

using families::Family;
using families::GgufInteger;
using families::NamePair;

constexpr NamePair kGlobalTensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

constexpr std::string_view kGgufLayer = "blk.";
constexpr std::string_view kOurLayer = "model.layers.";

// Renames by the tables; `from_gguf` says which way.
std::string renamed(const Family& family, std::string_view name, bool from_gguf) {
  const auto side = [&](const NamePair& pair) {
    return from_gguf ? pair : NamePair{pair.ours, pair.foreign};
  };
  for (const NamePair& pair : kGlobalTensors) {
    if (side(pair).foreign == name) return std::string(side(pair).ours);
  }
  const std::string_view prefix = from_gguf ? kGgufLayer : kOurLayer;
  if (!name.starts_with(prefix)) return "";
  name.remove_prefix(prefix.size());
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || digits > 6 || name[digits] != '.') {
    return "";
  }
  for (const NamePair& pair : family.gguf->layer) {
    if (side(pair).foreign == name.substr(digits + 1)) {
      return fmt::format("{}{}.{}", from_gguf ? kOurLayer : kGgufLayer, name.substr(0, digits),
                         side(pair).ours);
    }
  }
  return "";
}

// Behind the architecture and a dot.
constexpr GgufInteger kNumbers[] = {
    {"block_count", "num_hidden_layers", true},
    {"context_length", "max_position_embeddings", true},
    {"embedding_length", "hidden_size", true},
    {"attention.head_count", "num_attention_heads", true},
    {"attention.head_count_kv", "num_key_value_heads", true},
    {"attention.key_length", "head_dim", false},
};

constexpr GgufInteger kGlobalNumbers[] = {
    {"tokenizer.ggml.eos_token_id", "eos_token_id", false},
    {"tokenizer.ggml.padding_token_id", "pad_token_id", false},
};

constexpr NamePair kRealNumbers[] = {
    {"rope.freq_base", "rope_theta"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.scaling.factor", "rope_scaling.factor"},
    {"rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast"},
    {"rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow"},
    {"rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings"},
};

std::string key_of(const Family& family, std::string_view name) {
  return fmt::format("{}.{}", family.gguf->architecture, name);
}

// Whole numbers with their full keys, all families' first.
struct FullKey {
  std::string gguf;
  std::string_view config;
  bool required;
};
std::vector<FullKey> integer_keys(const Family& family) {
  std::vector<FullKey> keys;
  for (const GgufInteger& key : kNumbers) {
    keys.push_back({key_of(family, key.gguf), key.config, key.required});
  }
  for (const GgufInteger& key : family.gguf->numbers) {
    keys.push_back({key_of(family, key.gguf), key.config, key.required});
  }
  for (const GgufInteger& key : kGlobalNumbers) {
    keys.push_back({std::string(key.gguf), key.config, key.required});
  }
  return keys;
}

Result<Json> rope_from_gguf(const Family& family, const GgufMetadata& metadata) {
  Json rope;
  rope.set("rope_type", "default");
  const std::string type_key = key_of(family, "rope.scaling.type");
  TRY_ASSIGN(const auto type, metadata.text(type_key));
  if (!type || *type == "none") return rope;
  if (*type != "yarn" && *type != "linear") {
    return metadata.bad(
        type_key, fmt::format("is {}; supported: \"yarn\", \"linear\", \"none\"", shown(*type)));
  }
  const auto number = [&](std::string_view name, double fallback) -> Result<double> {
    TRY_ASSIGN(const std::optional<double> value, metadata.number(key_of(family, name)));
    return value.value_or(fallback);
  };
  const families::GgufNames& names = *family.gguf;
  TRY_ASSIGN(const double factor, number("rope.scaling.factor", names.yarn_factor));
  rope.set("rope_type", *type).set("factor", factor);
  if (*type == "linear") return rope;
  TRY_ASSIGN(const double original,
             number("rope.scaling.original_context_length", names.yarn_original_context));
  TRY_ASSIGN(const double fast, number("rope.scaling.yarn_beta_fast", 32.0));
  TRY_ASSIGN(const double slow, number("rope.scaling.yarn_beta_slow", 1.0));
  if (original > 0) rope.set("original_max_position_embeddings", original);
  rope.set("beta_fast", fast).set("beta_slow", slow).set("truncate", names.yarn_truncate);
  // 0.1 mscale_all_dim; mscale, which is the same in all published files, is not said.
  TRY_ASSIGN(const double grown, number("rope.scaling.yarn_log_multiplier", 0.0));
  if (grown > 0) {
    const double mscale = std::round(grown * 1e7) / 1e6;
    rope.set("mscale", mscale).set("mscale_all_dim", mscale);
  }
  return rope;
}

Result<void> check_value_length(const Family& family, const GgufMetadata& metadata,
                                const Json& config) {
  if (config.find("v_head_dim") != nullptr) return {};  // values have a size of their own
  const std::string key = key_of(family, "attention.value_length");
  TRY_ASSIGN(const auto length, metadata.integer(key));
  const std::optional<int64_t> of_keys = config.integer("head_dim");
  if (!length || !of_keys || length == of_keys) return {};
  return metadata.bad(key, fmt::format("is {}, but key_length is {}", *length, *of_keys));
}

// Whether a key behind the architecture changes what is computed; those that are read are not
// asked.
bool changes_arithmetic(std::string_view key) {
  constexpr std::string_view kStems[] = {"softcap", "window", "scale", "clamp",
                                         "alibi",   "causal", "rope.", "residual"};
  if (key == "rope.scaling.finetuned") return false;
  return std::any_of(std::begin(kStems), std::end(kStems), [&](std::string_view stem) {
    return key.find(stem) != std::string_view::npos;
  });
}

// Keys of the architecture that look like arithmetic, say more than "no" or "once", and that nobody
// reads.
Result<void> refuse_unread_arithmetic(const Family& family, const GgufMetadata& metadata) {
  const families::GgufNames& names = *family.gguf;
  std::set<std::string, std::less<>> read;
  for (const FullKey& key : integer_keys(family)) read.insert(key.gguf);
  for (const NamePair& pair : kRealNumbers) read.insert(key_of(family, pair.foreign));
  for (const NamePair& pair : names.reals) read.insert(key_of(family, pair.foreign));
  for (const NamePair& pair : names.booleans) read.insert(key_of(family, pair.foreign));
  for (const char* key : {"rope.scaling.type", "rope.scaling.yarn_log_multiplier"}) {
    read.insert(key_of(family, key));
  }
  const std::string prefix = key_of(family, "");
  for (auto at = metadata.values().lower_bound(prefix); at != metadata.values().end(); ++at) {
    const std::string& key = at->first;
    if (!key.starts_with(prefix)) break;
    if (read.contains(key) || !changes_arithmetic(std::string_view(key).substr(prefix.size()))) {
      continue;
    }
    if (key == prefix + "rope.dimension_count" || key == prefix + "attention.causal") continue;
    const Result<std::optional<double>> number = metadata.number(key);
    const Result<std::optional<bool>> flag = metadata.boolean(key);
    const bool is_neutral = number.ok() ? **number == 0.0 || **number == 1.0
                                        : flag.ok() && flag->value_or(true) == false;
    if (is_neutral) continue;
    Error error = metadata.bad(key, fmt::format("changes what is computed, and {} does not "
                                                "compute it; supported: not there",
                                                family.architecture));
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  return {};
}

// Of heads of which not all turns GGUF's rows would lie in another order.
Result<void> check_rotation(const Family& family, const GgufMetadata& metadata,
                            const Json& config) {
  if (config.find("qk_rope_head_dim") != nullptr) return {};
  const std::string key = key_of(family, "rope.dimension_count");
  TRY_ASSIGN(const std::optional<int64_t> turning, metadata.integer(key));
  const int64_t heads = std::max<int64_t>(config.integer("num_attention_heads").value_or(1), 1);
  const int64_t whole =
      config.integer("head_dim").value_or(config.integer("hidden_size").value_or(0) / heads);
  if (!turning || *turning == whole) return {};
  Error error = metadata.bad(
      key, fmt::format("is {} of heads of {}; supported: the whole head", *turning, whole));
  error.code = ErrorCode::kUnsupported;
  return error;
}

}  // namespace

Result<const Family*> gguf_family(const GgufMetadata& metadata,
                                  const families::Registry& registry) {
  constexpr std::string_view kKey = "general.architecture";
  TRY_ASSIGN(const std::optional<std::string_view> architecture, metadata.text(kKey));
  if (!architecture) return metadata.bad(kKey, "is missing");
  const auto number = [&](std::string_view name, int64_t fallback) -> Result<int64_t> {
    TRY_ASSIGN(const std::optional<int64_t> value,
               metadata.integer(fmt::format("{}.{}", *architecture, name)));
    return value.value_or(fallback);
  };
  families::GgufKind kind;
  TRY_ASSIGN(const int64_t experts, number("expert_count", 0));
  TRY_ASSIGN(const int64_t window, number("attention.sliding_window", 0));
  TRY_ASSIGN(kind.expert_gating, number("expert_gating_func", kind.expert_gating));
  kind.has_experts = experts > 0;
  kind.has_window = window > 0;
  const Family* const found = registry.find_gguf(*architecture, kind);
  if (found != nullptr) return found;
  std::string known;
  for (const Family* family : registry.families()) {
    if (family->gguf == nullptr) continue;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", family->gguf->architecture);
  }
  Error error =
      metadata.bad(kKey, fmt::format("is {}; supported: {}", shown(*architecture), known));
  if (*architecture == "gptoss") {
    error = metadata.bad(
        kKey,
        "is \"gptoss\": a file of Ollama's own making, whose experts lie in another order than in "
        "the GGUF files of llama.cpp (\"gpt-oss\"), and which other programs do not read; take "
        "openai/gpt-oss-20b or ggml-org/gpt-oss-20b-GGUF (or the 120b) from the hub instead");
  }
  error.code = ErrorCode::kUnsupported;
  return error;
}

std::string name_from_gguf(const Family& family, std::string_view gguf_name) {
  return renamed(family, gguf_name, true);
}
std::string name_to_gguf(const Family& family, std::string_view name) {
  return renamed(family, name, false);
}

std::string gguf_key_of(const Family& family, std::string_view config_key) {
  for (const FullKey& key : integer_keys(family)) {
    if (key.config == config_key) return key.gguf;
  }
  for (const auto& [gguf, config] : kRealNumbers) {
    if (config == config_key) return key_of(family, gguf);
  }
  return "";
}

Result<Json> config_from_gguf(const Family& family, const GgufMetadata& metadata,
                              const GgufTensorFacts& tensors) {
  Json config;
  config.set("architectures", Json::Array{family.architecture});
  config.set("model_type", family.model_type);
  for (const FullKey& key : integer_keys(family)) {
    TRY_ASSIGN(std::optional<int64_t> value, metadata.integer(key.gguf));
    if (!value && key.config == "intermediate_size") {
      TRY_ASSIGN(value, metadata.integer(key_of(family, "feed_forward_length")));
      if (!value) return metadata.bad(key.gguf, "is missing");
    }
    if (!value && key.required) return metadata.bad(key.gguf, "is missing");
    if (value) config.set(key.config, *value);
  }
  for (const families::GgufFlag& flag : family.gguf->flags) config.set(flag.config, flag.value);
  for (const NamePair& pair : family.gguf->reals) {
    TRY_ASSIGN(const auto value, metadata.number(key_of(family, pair.foreign)));
    if (value) config.set(pair.ours, *value);
  }
  for (const NamePair& pair : family.gguf->booleans) {
    TRY_ASSIGN(const auto value, metadata.boolean(key_of(family, pair.foreign)));
    if (value) config.set(pair.ours, *value);
  }
  TRY(check_value_length(family, metadata, config));
  TRY(check_rotation(family, metadata, config));
  TRY(refuse_unread_arithmetic(family, metadata));
  TRY_ASSIGN(const auto theta, metadata.number(key_of(family, "rope.freq_base")));
  TRY_ASSIGN(const auto epsilon,
             metadata.number(key_of(family, "attention.layer_norm_rms_epsilon")));
  config.set("rope_theta", theta.value_or(family.gguf->rope_theta));
  // 1e-5 as a float32 is not 1e-5: say what was meant.
  if (epsilon) {
    double meant = *epsilon;
    for (const double round : {1e-5, 1e-6}) {
      if (static_cast<float>(*epsilon) == static_cast<float>(round)) meant = round;
    }
    config.set("rms_norm_eps", meant);
  }
  TRY_ASSIGN(Json rope, rope_from_gguf(family, metadata));
  config.set("rope_scaling", std::move(rope));
  config.set("vocab_size", tensors.vocab_size);
  config.set("tie_word_embeddings", !tensors.has_head);
  if (tensors.has_mlp_bias) config.set("mlp_bias", true);
  if (tensors.has_attention_bias) config.set("attention_bias", true);
  if (family.gguf->complete != nullptr) family.gguf->complete(config);
  return config;
}

void config_to_gguf(const Family& family, const Json& given, GgufHeader& header) {
  Json config = given;
  if (family.gguf->prepare != nullptr) family.gguf->prepare(config);
  header.text("general.architecture", family.gguf->architecture);
  header.text("general.type", "model");
  const auto u32 = [&](std::string_view gguf, std::string_view key) {
    const std::optional<int64_t> value = config.integer(key);
    if (value) header.u32(key_of(family, gguf), static_cast<uint32_t>(*value));
  };
  for (const GgufInteger& key : kNumbers) u32(key.gguf, key.config);
  bool says_length = false;
  for (const GgufInteger& key : family.gguf->numbers) {
    u32(key.gguf, key.config);
    says_length = says_length || key.gguf == "feed_forward_length";
  }
  if (!says_length) u32("feed_forward_length", "intermediate_size");
  if (config.find("v_head_dim") == nullptr) u32("attention.value_length", "head_dim");
  if (family.gguf->expert_gating > 0) {
    header.u32(key_of(family, "expert_gating_func"),
               static_cast<uint32_t>(family.gguf->expert_gating));
  }
  for (const NamePair& pair : family.gguf->booleans) {
    const std::optional<bool> value = config.boolean(pair.ours);
    if (value) header.boolean(key_of(family, pair.foreign), *value);
  }
  const auto f32 = [&](std::string_view gguf, double value) {
    header.f32(key_of(family, gguf), static_cast<float>(value));
  };
  f32("rope.freq_base", config.number("rope_theta").value_or(family.gguf->rope_theta));
  f32("attention.layer_norm_rms_epsilon", config.number("rms_norm_eps").value_or(1e-5));
  for (const NamePair& pair : family.gguf->reals) {
    if (const auto value = config.number(pair.ours)) f32(pair.foreign, *value);
  }
  const Json* rope = config.find("rope_scaling");
  if (rope != nullptr && rope->is_object() && rope->find("factor") != nullptr) {
    const std::string type =
        rope->string("rope_type").value_or(rope->string("type").value_or("yarn"));
    if (type != "linear" && type != "yarn") return;  // llama3's is a tensor
    header.text(key_of(family, "rope.scaling.type"), type);
    f32("rope.scaling.factor", rope->number("factor").value_or(family.gguf->yarn_factor));
    if (type == "linear") return;
    const double fast = rope->number("beta_fast").value_or(32.0);
    const double slow = rope->number("beta_slow").value_or(1.0);
    if (fast != 32.0) f32("rope.scaling.yarn_beta_fast", fast);
    if (slow != 1.0) f32("rope.scaling.yarn_beta_slow", slow);
    if (const double mscale = rope->number("mscale_all_dim").value_or(0.0); mscale > 0) {
      f32("rope.scaling.yarn_log_multiplier", 0.1 * mscale);
    }
    header.u32(
        key_of(family, "rope.scaling.original_context_length"),
        static_cast<uint32_t>(rope->number("original_max_position_embeddings").value_or(4096.0)));
  }
}

}  // namespace pelton::checkpoint
