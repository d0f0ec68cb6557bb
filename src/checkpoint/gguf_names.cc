#include "checkpoint/gguf_names.h"

#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"

namespace pelton::checkpoint {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;  // GGUF's, ours

constexpr NamePair kGlobalNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

constexpr NamePair kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"ffn_gate_inp.bias", "mlp.router.bias"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_exps"},
    {"ffn_gate_exps.bias", "mlp.experts.gate_exps_bias"},
    {"ffn_up_exps.weight", "mlp.experts.up_exps"},
    {"ffn_up_exps.bias", "mlp.experts.up_exps_bias"},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_exps"},
    {"ffn_gate_up_exps.bias", "mlp.experts.gate_up_exps_bias"},
    {"ffn_down_exps.weight", "mlp.experts.down_exps"},
    {"ffn_down_exps.bias", "mlp.experts.down_exps_bias"},
};

constexpr std::string_view kGgufLayer = "blk.";
constexpr std::string_view kOurLayer = "model.layers.";

// Renames by the tables; `from_gguf` says which way.
std::string renamed(std::string_view name, bool from_gguf) {
  const auto side = [&](const NamePair& pair) {
    return from_gguf ? pair : NamePair(pair.second, pair.first);
  };
  for (const NamePair& pair : kGlobalNames) {
    if (side(pair).first == name) return std::string(side(pair).second);
  }
  const std::string_view prefix = from_gguf ? kGgufLayer : kOurLayer;
  if (!name.starts_with(prefix)) return "";
  name.remove_prefix(prefix.size());
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || digits > 6 || name[digits] != '.') {
    return "";
  }
  for (const NamePair& pair : kLayerNames) {
    if (side(pair).first == name.substr(digits + 1)) {
      return fmt::format("{}{}.{}", from_gguf ? kOurLayer : kGgufLayer, name.substr(0, digits),
                         side(pair).second);
    }
  }
  return "";
}

struct Key {
  std::string_view gguf;
  std::string_view config;
  bool required;
};

constexpr Key kIntegers[] = {
    {"gpt-oss.block_count", "num_hidden_layers", true},
    {"gpt-oss.context_length", "max_position_embeddings", true},
    {"gpt-oss.embedding_length", "hidden_size", true},
    {"gpt-oss.expert_feed_forward_length", "intermediate_size", false},
    {"gpt-oss.attention.head_count", "num_attention_heads", true},
    {"gpt-oss.attention.head_count_kv", "num_key_value_heads", true},
    {"gpt-oss.attention.key_length", "head_dim", true},
    {"gpt-oss.attention.sliding_window", "sliding_window", true},
    {"gpt-oss.expert_count", "num_local_experts", true},
    {"gpt-oss.expert_used_count", "num_experts_per_tok", true},
    {"tokenizer.ggml.eos_token_id", "eos_token_id", false},
    {"tokenizer.ggml.padding_token_id", "pad_token_id", false},
};

Result<Json> rope_from_gguf(const GgufMetadata& metadata) {
  Json rope;
  rope.set("rope_type", "default");
  TRY_ASSIGN(const auto type, metadata.text("gpt-oss.rope.scaling.type"));
  if (!type || *type == "none") return rope;
  if (*type != "yarn") {
    return metadata.bad("gpt-oss.rope.scaling.type",
                        fmt::format("is {}; supported: \"yarn\", \"none\"", shown(*type)));
  }
  const auto number = [&](std::string_view key, double fallback) -> Result<double> {
    TRY_ASSIGN(const std::optional<double> value, metadata.number(key));
    return value.value_or(fallback);
  };
  TRY_ASSIGN(const double factor, number("gpt-oss.rope.scaling.factor", 32.0));
  TRY_ASSIGN(const double original, number("gpt-oss.rope.scaling.original_context_length", 4096));
  TRY_ASSIGN(const double fast, number("gpt-oss.rope.scaling.yarn_beta_fast", 32.0));
  TRY_ASSIGN(const double slow, number("gpt-oss.rope.scaling.yarn_beta_slow", 1.0));
  rope.set("rope_type", "yarn").set("factor", factor);
  rope.set("original_max_position_embeddings", original);
  rope.set("beta_fast", fast).set("beta_slow", slow).set("truncate", false);
  return rope;
}

}  // namespace

Result<void> check_gguf_architecture(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "general.architecture";
  TRY_ASSIGN(const std::optional<std::string_view> architecture, metadata.text(kKey));
  if (!architecture) return metadata.bad(kKey, "is missing");
  if (*architecture == "gpt-oss") return {};
  Error error =
      metadata.bad(kKey, fmt::format("is {}; supported: \"gpt-oss\"", shown(*architecture)));
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

std::string name_from_gguf(std::string_view gguf_name) {
  return renamed(gguf_name, true);
}
std::string name_to_gguf(std::string_view name) {
  return renamed(name, false);
}

std::string_view gguf_key_of(std::string_view config_key) {
  for (const Key& key : kIntegers) {
    if (key.config == config_key) return key.gguf;
  }
  constexpr NamePair kOthers[] = {
      {"gpt-oss.rope.freq_base", "rope_theta"},
      {"gpt-oss.attention.layer_norm_rms_epsilon", "rms_norm_eps"},
      {"gpt-oss.rope.scaling.factor", "rope_scaling.factor"},
      {"gpt-oss.rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast"},
      {"gpt-oss.rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow"},
      {"gpt-oss.rope.scaling.original_context_length",
       "rope_scaling.original_max_position_embeddings"},
  };
  for (const auto& [gguf, config] : kOthers) {
    if (config == config_key) return gguf;
  }
  return "";
}

Result<Json> config_from_gguf(const GgufMetadata& metadata, int64_t vocab_size) {
  Json config;
  config.set("architectures", Json::Array{"GptOssForCausalLM"}).set("model_type", "gpt_oss");
  for (const Key& key : kIntegers) {
    TRY_ASSIGN(std::optional<int64_t> value, metadata.integer(key.gguf));
    if (!value && key.config == "intermediate_size") {
      TRY_ASSIGN(value, metadata.integer("gpt-oss.feed_forward_length"));
      if (!value) return metadata.bad(key.gguf, "is missing");
    }
    if (!value && key.required) return metadata.bad(key.gguf, "is missing");
    if (value) config.set(key.config, *value);
  }
  TRY_ASSIGN(const auto value_length, metadata.integer("gpt-oss.attention.value_length"));
  if (value_length && value_length != config.integer("head_dim")) {
    return metadata.bad(
        "gpt-oss.attention.value_length",
        fmt::format("is {}, but key_length is {}", *value_length, *config.integer("head_dim")));
  }
  TRY_ASSIGN(const auto theta, metadata.number("gpt-oss.rope.freq_base"));
  TRY_ASSIGN(const auto epsilon, metadata.number("gpt-oss.attention.layer_norm_rms_epsilon"));
  config.set("rope_theta", theta.value_or(150000.0));
  // 1e-5 as a float32 is not 1e-5: say what was meant.
  const double stored = epsilon.value_or(1e-5);
  config.set("rms_norm_eps", static_cast<float>(stored) == 1e-5f ? 1e-5 : stored);
  TRY_ASSIGN(Json rope, rope_from_gguf(metadata));
  config.set("rope_scaling", std::move(rope));
  config.set("vocab_size", vocab_size);
  return config;
}

void config_to_gguf(const Json& config, GgufHeader& header) {
  header.text("general.architecture", "gpt-oss");
  header.text("general.type", "model");
  for (const Key& key : kIntegers) {
    if (!key.gguf.starts_with("gpt-oss.")) continue;
    const std::optional<int64_t> value = config.integer(key.config);
    if (value) header.u32(key.gguf, static_cast<uint32_t>(*value));
  }
  const auto u32 = [&](std::string_view gguf, std::string_view key) {
    header.u32(gguf, static_cast<uint32_t>(config.integer(key).value_or(0)));
  };
  u32("gpt-oss.feed_forward_length", "intermediate_size");
  u32("gpt-oss.attention.value_length", "head_dim");
  const auto f32 = [&](std::string_view gguf, double value) {
    header.f32(gguf, static_cast<float>(value));
  };
  f32("gpt-oss.rope.freq_base", config.number("rope_theta").value_or(150000.0));
  f32("gpt-oss.attention.layer_norm_rms_epsilon", config.number("rms_norm_eps").value_or(1e-5));
  const Json* rope = config.find("rope_scaling");
  if (rope != nullptr && rope->is_object() && rope->find("factor") != nullptr) {
    header.text("gpt-oss.rope.scaling.type", "yarn");
    f32("gpt-oss.rope.scaling.factor", rope->number("factor").value_or(32.0));
    header.u32(
        "gpt-oss.rope.scaling.original_context_length",
        static_cast<uint32_t>(rope->number("original_max_position_embeddings").value_or(4096.0)));
  }
}

}  // namespace pelton::checkpoint
