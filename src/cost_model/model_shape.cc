#include "cost_model/model_shape.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "cost_model/built_in_data.h"
#include "families/published_config.h"

namespace pelton::cost_model {
namespace {

// Far beyond every model there is; products of four of them and a batch stay within 63 bits.
constexpr int64_t kSizeMax = 1 << 20;
constexpr int64_t kLayersMax = 4096;

class Reader {
 public:
  Reader(const Json& config, const std::string& origin) : config_(config), origin_(origin) {}

  Result<int64_t> size(std::string_view key, int64_t most = kSizeMax) const {
    const Json* const found = config_.find(key);
    if (found == nullptr || found->is_null()) return bad(key, "is missing");
    return size_of(*found, key, most);
  }
  Result<int64_t> size_or(std::string_view key, int64_t otherwise) const {
    const Json* const found = config_.find(key);
    if (found == nullptr || found->is_null()) return otherwise;
    return size_of(*found, key, kSizeMax);
  }
  bool flag(std::string_view key, bool otherwise) const {
    return config_.boolean(key).value_or(otherwise);
  }
  const Json& config() const { return config_; }

  Error bad(std::string_view key, const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {} {}", origin_, key, what),
                 std::string(key)};
  }
  Error unsupported(const std::string& what) const {
    return Error{ErrorCode::kUnsupported, fmt::format("{}: {}", origin_, what), "model"};
  }

 private:
  Result<int64_t> size_of(const Json& value, std::string_view key, int64_t most) const {
    if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > most) {
      return bad(key, fmt::format("must be a whole number from 0 to {}", most));
    }
    return value.as_integer();
  }

  const Json& config_;
  const std::string& origin_;
};

bool is_gpt_oss(const std::string& type) {
  return type == "gpt_oss";
}
bool is_deepseek(const std::string& type) {
  return type == "deepseek_v2" || type == "deepseek_v3" || type == "kimi_k2";
}
bool is_llama_like(const std::string& type) {
  constexpr std::string_view kTypes[] = {"llama", "mistral",   "mixtral",   "qwen2",
                                         "qwen3", "qwen2_moe", "qwen3_moe", "granite"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

double bits_of(const std::string& method, const Json& config) {
  if (method == "mxfp4") return 4.25;  // 32 elements of 4 bits and a scale of 8
  if (method == "fp8") return 8;
  if (method == "awq" || method == "gptq") {
    const Json* const quantization = config.find("quantization_config");
    return quantization->number("bits").value_or(4) + 0.125;  // a float16 scale for 128
  }
  return 16;
}

void read_bits(const Json& config, ModelShape& shape) {
  const std::string dtype = config.string("torch_dtype").value_or("bfloat16");
  shape.other_bits = dtype == "float32" ? 32 : 16;
  shape.expert_bits = shape.other_bits;
  const Json* const quantization = config.find("quantization_config");
  if (quantization == nullptr) return;
  const std::string method = quantization->string("quant_method").value_or("");
  const double bits = std::clamp(bits_of(method, config), 1.0, 32.0);
  shape.expert_bits = bits;
  // gpt-oss leaves everything but the experts alone; the others spare embedding and head at most.
  if (method != "mxfp4") shape.other_bits = bits;
}

Result<void> read_layers(const Reader& reader, ModelShape& shape) {
  TRY_ASSIGN(const int64_t count, reader.size("num_hidden_layers", kLayersMax));
  if (count < 1) return reader.bad("num_hidden_layers", "must be at least 1");
  TRY_ASSIGN(const int64_t dense_first, reader.size_or("first_k_dense_replace", 0));
  const AttentionKind usual =
      is_deepseek(shape.model_type) ? AttentionKind::kLatent : AttentionKind::kFull;
  for (int64_t i = 0; i < count; ++i) {
    shape.layers.push_back(
        {.attention = usual, .has_experts = shape.experts > 0 && i >= dense_first});
  }
  const Json* const types = reader.config().find("layer_types");
  if (types != nullptr && types->is_array()) {
    if (static_cast<int64_t>(types->as_array().size()) != count) {
      return reader.bad("layer_types", fmt::format("must name {} layers", count));
    }
    for (size_t i = 0; i < shape.layers.size(); ++i) {
      const Json& type = types->as_array()[i];
      if (type == Json("sliding_attention")) {
        shape.layers[i].attention = AttentionKind::kSliding;
      } else if (!(type == Json("full_attention"))) {
        return reader.unsupported(
            "layer_types has a kind of attention whose keys and values we "
            "cannot count");
      }
    }
  } else if (is_gpt_oss(shape.model_type)) {
    for (size_t i = 0; i < shape.layers.size(); i += 2) {
      shape.layers[i].attention = AttentionKind::kSliding;
    }
  }
  return {};
}

Result<void> read_heads(const Reader& reader, ModelShape& shape) {
  TRY_ASSIGN(shape.hidden, reader.size("hidden_size"));
  TRY_ASSIGN(shape.heads, reader.size("num_attention_heads"));
  if (shape.hidden < 1) return reader.bad("hidden_size", "must be at least 1");
  if (shape.heads < 1) return reader.bad("num_attention_heads", "must be at least 1");
  TRY_ASSIGN(shape.kv_heads, reader.size_or("num_key_value_heads", shape.heads));
  // Given (gpt-oss: 64) where it is not hidden / heads.
  TRY_ASSIGN(shape.head_size, reader.size_or("head_dim", shape.hidden / shape.heads));
  if (shape.kv_heads < 1 || shape.kv_heads > shape.heads) {
    return reader.bad("num_key_value_heads", fmt::format("must be 1 to {}", shape.heads));
  }
  if (!is_deepseek(shape.model_type)) return {};
  TRY_ASSIGN(shape.latent.q_rank, reader.size_or("q_lora_rank", 0));
  TRY_ASSIGN(shape.latent.kv_rank, reader.size("kv_lora_rank"));
  TRY_ASSIGN(shape.latent.nope_size, reader.size("qk_nope_head_dim"));
  TRY_ASSIGN(shape.latent.rope_size, reader.size("qk_rope_head_dim"));
  TRY_ASSIGN(shape.latent.value_size, reader.size("v_head_dim"));
  return {};
}

Result<void> read_experts(const Reader& reader, ModelShape& shape) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (shape.experts > 0) break;
    TRY_ASSIGN(shape.experts, reader.size_or(key, 0));
  }
  TRY_ASSIGN(shape.intermediate, reader.size_or("intermediate_size", 0));
  if (shape.experts == 0) return {};
  TRY_ASSIGN(shape.expert_intermediate,
             reader.size_or("moe_intermediate_size", shape.intermediate));
  TRY_ASSIGN(shape.experts_per_token, reader.size_or("num_experts_per_tok", 0));
  TRY_ASSIGN(shape.shared_experts, reader.size_or("n_shared_experts", 0));
  if (shape.experts_per_token < 1 || shape.experts_per_token > shape.experts) {
    return reader.bad("num_experts_per_tok", fmt::format("must be 1 to {}", shape.experts));
  }
  return {};
}

// In doubles, before anything is multiplied in whole numbers.
double roughly(const ModelShape& shape) {
  const auto d = [](int64_t value) { return static_cast<double>(value); };
  const double attention = d(shape.hidden + shape.latent.q_rank + shape.latent.kv_rank) *
                           d(shape.heads) *
                           (d(shape.head_size) + d(shape.latent.nope_size) +
                            d(shape.latent.rope_size) + d(shape.latent.value_size));
  const double inner = d(shape.intermediate) +
                       d(shape.experts + shape.shared_experts) * (d(shape.expert_intermediate) + 1);
  return d(shape.layer_count()) * 4 * (attention + d(shape.hidden) * inner) +
         2 * d(shape.vocab) * d(shape.hidden);
}

int64_t attention_parameters(const ModelShape& shape) {
  const int64_t hidden = shape.hidden;
  if (shape.layers.front().attention == AttentionKind::kLatent) {
    const LatentShape& latent = shape.latent;
    const int64_t query = shape.heads * (latent.nope_size + latent.rope_size);
    const int64_t queries = latent.q_rank > 0
                                ? hidden * latent.q_rank + latent.q_rank + latent.q_rank * query
                                : hidden * query;
    return queries + hidden * (latent.kv_rank + latent.rope_size) + latent.kv_rank +
           latent.kv_rank * shape.heads * (latent.nope_size + latent.value_size) +
           shape.heads * latent.value_size * hidden;
  }
  const int64_t q = shape.heads * shape.head_size;
  const int64_t kv = shape.kv_heads * shape.head_size;
  int64_t count = hidden * (q + 2 * kv) + q * hidden;
  if (shape.attention_bias || shape.qkv_bias) count += q + 2 * kv;
  if (shape.attention_bias) count += hidden;
  if (shape.sinks) count += shape.heads;
  if (shape.qk_norm) count += 2 * shape.head_size;
  return count;
}

}  // namespace

int64_t ModelShape::kv_elements(AttentionKind kind) const {
  if (kind == AttentionKind::kLatent) return latent.kv_rank + latent.rope_size;
  return 2 * kv_heads * head_size;
}

int64_t ModelShape::count(AttentionKind kind) const {
  return std::count_if(layers.begin(), layers.end(),
                       [&](const LayerShape& layer) { return layer.attention == kind; });
}

int64_t ModelShape::expert_layers() const {
  return std::count_if(layers.begin(), layers.end(),
                       [](const LayerShape& layer) { return layer.has_experts; });
}

int64_t ModelShape::tokens_held(AttentionKind kind, int64_t tokens) const {
  return kind == AttentionKind::kSliding ? std::min(tokens, window) : tokens;
}

double ModelShape::kv_bytes(int64_t tokens, double element_bytes) const {
  double elements = 0;
  for (const LayerShape& layer : layers) {
    elements += static_cast<double>(kv_elements(layer.attention)) *
                static_cast<double>(tokens_held(layer.attention, tokens));
  }
  return elements * element_bytes;
}

ParameterCount count_parameters(const ModelShape& shape) {
  ParameterCount count;
  const int64_t layers = shape.layer_count();
  const int64_t expert_layers = shape.expert_layers();
  count.embedding = shape.vocab * shape.hidden;
  count.head = shape.tied_embedding ? 0 : shape.vocab * shape.hidden;
  count.attention = layers * attention_parameters(shape);
  count.other = (2 * layers + 1) * shape.hidden;
  count.dense = (layers - expert_layers) * 3 * shape.hidden * shape.intermediate;
  if (expert_layers > 0) {
    const int64_t inner = shape.expert_intermediate;
    count.expert = 3 * shape.hidden * inner;
    if (shape.expert_bias) count.expert += 2 * inner + shape.hidden;
    count.experts = expert_layers * shape.experts * count.expert;
    count.dense += expert_layers * shape.shared_experts * 3 * shape.hidden * inner;
    int64_t router = shape.hidden * shape.experts;
    if (shape.expert_bias || shape.router_correction) router += shape.experts;
    count.other += expert_layers * router;
  }
  return count;
}

int64_t ParameterCount::active(const ModelShape& shape) const {
  // Of the embedding one row is read, which is no product.
  const int64_t head_used = head > 0 ? head : embedding;
  return attention + dense + other + head_used +
         shape.expert_layers() * shape.experts_per_token * expert;
}

double weight_bytes(const ModelShape& shape) {
  const ParameterCount count = count_parameters(shape);
  const auto experts = static_cast<double>(count.experts);
  const auto others = static_cast<double>(count.total() - count.experts);
  return (experts * shape.expert_bits + others * shape.other_bits) / 8;
}

Result<ModelShape> parse_model_shape(const Json& config, const std::string& origin) {
  const Reader reader(config, origin);
  ModelShape shape{.name = origin, .model_type = config.string("model_type").value_or("")};
  const std::string& type = shape.model_type;
  if (!is_gpt_oss(type) && !is_deepseek(type) && !is_llama_like(type)) {
    return reader.unsupported(
        fmt::format("model_type '{}' is none whose bytes we can count (gpt_oss, llama, mistral, "
                    "mixtral, qwen2, qwen3, their _moe, deepseek_v2, deepseek_v3)",
                    type));
  }
  TRY(read_heads(reader, shape));
  TRY(read_experts(reader, shape));
  TRY(read_layers(reader, shape));
  TRY_ASSIGN(shape.vocab, reader.size("vocab_size", int64_t{1} << 24));
  TRY_ASSIGN(shape.context_max, reader.size("max_position_embeddings", int64_t{1} << 30));
  TRY_ASSIGN(shape.window, reader.size_or("sliding_window", 0));
  if (shape.count(AttentionKind::kSliding) > 0 && shape.window < 1) {
    return reader.bad("sliding_window", "must be at least 1 where layers slide");
  }
  shape.tied_embedding = reader.flag("tie_word_embeddings", false);
  shape.attention_bias = is_gpt_oss(type) || reader.flag("attention_bias", false);
  shape.qkv_bias = type.starts_with("qwen2");
  shape.qk_norm = type.starts_with("qwen3");
  shape.expert_bias = is_gpt_oss(type);
  shape.sinks = is_gpt_oss(type);
  shape.router_correction = type == "deepseek_v3" || type == "kimi_k2";
  shape.nominal_parameters = std::max<int64_t>(config.integer("nominal_parameters").value_or(0), 0);
  read_bits(config, shape);
  constexpr double kParametersMax = 1e15;
  if (roughly(shape) > kParametersMax) {
    return reader.bad("hidden_size", "and the other sizes make more than 1e15 parameters");
  }
  return shape;
}

bool is_known_shape(const std::string& model) {
  return families::published_config(model).ok() || find_data("models/" + model + ".json");
}

Result<ModelShape> find_model_shape(const std::string& model) {
  if (const Result<Json> config = families::published_config(model); config.ok()) {
    return parse_model_shape(*config, model);
  }
  if (const std::optional<std::string_view> text = find_data("models/" + model + ".json")) {
    TRY_ASSIGN(const Json config, Json::parse(*text));
    return parse_model_shape(config, model);
  }
  std::string file = model;
  if (std::filesystem::is_directory(file)) file += "/config.json";
  if (!std::filesystem::exists(file)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is no folder or config.json, nor gpt-oss-20b, gpt-oss-120b, {}",
                             model, fmt::join(data_names("models/"), ", ")),
                 "model"};
  }
  TRY_ASSIGN(const std::string text, base::read_file(file));
  TRY_ASSIGN(const Json config, Json::parse(text));
  TRY_ASSIGN(ModelShape shape, parse_model_shape(config, file));
  shape.name = model;
  return shape;
}

}  // namespace pelton::cost_model
