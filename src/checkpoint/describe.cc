#include "checkpoint/describe.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "families/expected_tensors.h"
#include "families/family.h"
#include "families/kv_groups.h"

namespace pelton::checkpoint {
namespace {

using families::AttentionKind;

// "13,761,264,768"
std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

std::string bytes_text(int64_t bytes) {
  static constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.2f} {} ({} bytes)", value, kUnits[unit], grouped(bytes));
}

std::string layers_text(const families::ModelConfig& config) {
  const int sliding = config.count(AttentionKind::kSliding);
  if (config.is_latent()) {
    return fmt::format("{}, all with latent attention (a row of {} for each token)",
                       config.layer_count(), config.latent.kv_rank + config.latent.rope_size);
  }
  if (sliding == 0) return fmt::format("{}, all with full attention", config.layer_count());
  return fmt::format("{}: {} sliding (window {}), {} full", config.layer_count(), sliding,
                     config.sliding_window, config.count(AttentionKind::kFull));
}

std::string hidden_text(const families::ModelConfig& config) {
  std::string text = std::to_string(config.hidden_size);
  if (config.intermediate_size > 0)
    text += fmt::format(", intermediate_size {}", config.intermediate_size);
  if (config.has_experts()) {
    text += fmt::format(", experts' intermediate_size {}", config.expert_intermediate_size);
  }
  return text;
}

std::string context_text(const families::ModelConfig& config) {
  const families::RopeConfig& rope = config.rope;
  const std::string tokens = grouped(config.context_max) + " tokens";
  switch (rope.scaling) {
    case families::RopeScaling::kNone:
      return tokens;
    case families::RopeScaling::kLinear:
      return fmt::format("{} (linear factor {})", tokens, rope.factor);
    case families::RopeScaling::kLlama3:
      return fmt::format("{} (llama3 factor {} over {})", tokens, rope.factor,
                         rope.original_context);
    case families::RopeScaling::kLongrope:
      return fmt::format("{} (longrope over {})", tokens, rope.original_context);
    case families::RopeScaling::kYarn:
      return fmt::format("{} (YaRN factor {} over {})", tokens, rope.factor, rope.original_context);
  }
  return tokens;
}

// What people call the type that a tensor's numbers have.
std::string_view type_name(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::kU8:  // blocks and scales, as published
    case tensor::DType::kMxfp4Tiles:
      return tensor::dtype_name(tensor::DType::kMxfp4);
    case tensor::DType::kInt8Tiles:  // the same numbers
      return tensor::dtype_name(tensor::DType::kQ8_0);
    case tensor::DType::kInt4Tiles:
      return "INT4";
    case tensor::DType::kCompactBf16:  // the same numbers
      return tensor::dtype_name(tensor::DType::kBf16);
    default:
      return tensor::dtype_name(dtype);
  }
}

WeightCounts count(const std::vector<families::ExpectedTensor>& tensors,
                   const families::ModelConfig& config) {
  WeightCounts counts;
  int64_t expert_parameters = 0;
  int64_t embedding_parameters = 0;
  for (const families::ExpectedTensor& tensor : tensors) {
    const int64_t bytes = tensor.bytes();
    counts.parameters += tensor.parameters();
    counts.total_bytes += bytes;
    ++counts.tensor_count;
    counts.type_bytes[type_name(tensor.dtype)] += bytes;
    switch (tensor.kind) {
      case families::TensorKind::kExperts:
        counts.expert_bytes += bytes;
        expert_parameters += tensor.parameters();
        break;
      case families::TensorKind::kAttention:
        counts.attention_bytes += bytes;
        break;
      case families::TensorKind::kEmbedding:
        counts.embedding_bytes += bytes;
        embedding_parameters += tensor.parameters();
        break;
      case families::TensorKind::kHead:
        counts.head_bytes += bytes;
        break;
      case families::TensorKind::kMlp:
        counts.mlp_bytes += bytes;
        break;
      case families::TensorKind::kRouter:
      case families::TensorKind::kNorms:
        counts.other_bytes += bytes;
        break;
    }
  }
  // Of the embedding one row is read, unless it is the head as well.
  counts.active_parameters = counts.parameters - expert_parameters;
  if (!config.tied_head) counts.active_parameters -= embedding_parameters;
  if (config.has_experts()) {
    counts.active_parameters += expert_parameters / config.expert_count * config.experts_per_token;
  }
  return counts;
}

}  // namespace

WeightCounts count_weights(const families::ModelConfig& config) {
  return count(families::expected_tensors(config, families::WeightLayout::kPublished), config);
}

WeightCounts count_weights(const Checkpoint& checkpoint) {
  return count(checkpoint.expected(), checkpoint.config());
}

KvBytes count_kv_bytes(const families::ModelConfig& config) {
  KvBytes bytes;
  const families::KvFormat format{.dtype = tensor::DType::kF16, .block_tokens = 1};
  for (const auto& group : families::kv_groups(config, format).specs) {
    if (group.slides()) {
      bytes.per_sequence += group.sliding_window * group.block_bytes;
    } else {
      bytes.per_token += group.block_bytes;
    }
  }
  return bytes;
}

std::string family_line(const families::ModelConfig& config) {
  return fmt::format("{} ({}); layers: {}; context: {}", config.model_type, config.architecture,
                     layers_text(config), context_text(config));
}

std::string left_out_warning(const Checkpoint& checkpoint) {
  if (!checkpoint.unused().other_head) return {};
  return "lm_head.weight is left out, though it differs from the embedding: config.json says "
         "tie_word_embeddings, so the embedding is the output head";
}

std::string describe(const Checkpoint& checkpoint) {
  const families::ModelConfig& config = checkpoint.config();
  const WeightCounts counts = count_weights(checkpoint);
  const KvBytes kv = count_kv_bytes(config);
  std::string out;
  const auto line = [&](std::string_view label, const std::string& text) {
    out += fmt::format("{:<18}{}\n", label, text);
  };
  if (const GgufMetadata* gguf = checkpoint.gguf()) {
    line("file", gguf->path());
  } else {
    line("folder", checkpoint.folder());
  }
  line("layout", std::string(layout_name(checkpoint.layout())));
  line("architecture", fmt::format("{} ({})", config.architecture, config.model_type));
  line("parameters", fmt::format("{} total, {} active per token", grouped(counts.parameters),
                                 grouped(counts.active_parameters)));
  line("weights", bytes_text(counts.total_bytes));
  if (config.has_experts()) line("  experts", bytes_text(counts.expert_bytes));
  if (counts.mlp_bytes > 0) line("  MLPs", bytes_text(counts.mlp_bytes));
  line("  attention", bytes_text(counts.attention_bytes));
  line("  embedding", bytes_text(counts.embedding_bytes));
  if (!config.tied_head) line("  head", bytes_text(counts.head_bytes));
  line("  other", bytes_text(counts.other_bytes));
  for (const auto& [type, bytes] : counts.type_bytes) {
    line(fmt::format("  as {}", type), bytes_text(bytes));
  }
  line("tensors", fmt::format("{} in {} file{}", counts.tensor_count, checkpoint.shard_count(),
                              checkpoint.shard_count() == 1 ? "" : "s"));
  if (checkpoint.unused().tensors > 0) {
    line("  left out",
         fmt::format("{} of other modalities or that draft tokens, {}", checkpoint.unused().tensors,
                     bytes_text(checkpoint.unused().bytes)));
  }
  if (const std::string warning = left_out_warning(checkpoint); !warning.empty()) {
    line("  warning", warning);
  }
  line("layers", layers_text(config));
  line("hidden", hidden_text(config));
  line("attention heads", fmt::format("{} x {}, KV heads {}", config.head_count, config.head_size,
                                      config.kv_head_count));
  if (config.has_experts()) {
    std::string experts =
        fmt::format("{}, {} per token", config.expert_count, config.experts_per_token);
    if (config.shared_expert_count > 0) {
      experts += fmt::format(", and {} for every token", config.shared_expert_count);
    }
    line("experts", experts);
  }
  line("vocabulary", grouped(config.vocab_size));
  line("context", context_text(config));
  if (!config.is_encoder())
    line("KV cache (16 bit)", fmt::format("{} per token, {} per sequence", bytes_text(kv.per_token),
                                          bytes_text(kv.per_sequence)));
  if (!config.eos_tokens.empty())
    line("stop tokens", fmt::format("{}", fmt::join(config.eos_tokens, ", ")));
  return out;
}

Json describe_json(const Checkpoint& checkpoint) {
  const families::ModelConfig& config = checkpoint.config();
  const WeightCounts counts = count_weights(checkpoint);
  const KvBytes kv = count_kv_bytes(config);
  Json bytes;
  bytes.set("total", counts.total_bytes).set("experts", counts.expert_bytes);
  bytes.set("attention", counts.attention_bytes).set("embedding", counts.embedding_bytes);
  bytes.set("head", counts.head_bytes).set("other", counts.other_bytes);
  if (counts.mlp_bytes > 0) bytes.set("mlp", counts.mlp_bytes);
  Json dtypes;
  for (const char* always : {"MXFP4", "BF16", "Q8_0", "F16", "F32"}) dtypes.set(always, 0);
  for (const auto& [type, type_bytes] : counts.type_bytes) dtypes.set(type, type_bytes);
  Json::Array stops;
  for (const TokenId token : config.eos_tokens) stops.push_back(token);

  Json json;
  json.set("folder", checkpoint.folder()).set("architecture", config.architecture);
  if (const GgufMetadata* gguf = checkpoint.gguf()) json.set("file", gguf->path());
  json.set("layout", layout_name(checkpoint.layout()));
  json.set("model_type", config.model_type);
  json.set("parameters_total", counts.parameters);
  json.set("parameters_active", counts.active_parameters);
  json.set("weight_bytes", std::move(bytes)).set("dtype_bytes", std::move(dtypes));
  json.set("tensors", counts.tensor_count).set("shards", checkpoint.shard_count());
  json.set("layers", config.layer_count());
  json.set("layers_sliding", config.count(AttentionKind::kSliding));
  json.set("layers_full", config.count(AttentionKind::kFull));
  json.set("layers_latent", config.count(AttentionKind::kLatent));
  json.set("sliding_window", config.sliding_window).set("hidden_size", config.hidden_size);
  json.set("intermediate_size",
           config.has_experts() ? config.expert_intermediate_size : config.intermediate_size);
  json.set("heads", config.head_count).set("kv_heads", config.kv_head_count);
  json.set("head_size", config.head_size).set("experts", config.expert_count);
  json.set("experts_per_token", config.experts_per_token).set("vocab_size", config.vocab_size);
  json.set("context_max", config.context_max);
  json.set("kv_bytes_per_token", kv.per_token).set("kv_bytes_per_sequence", kv.per_sequence);
  json.set("stop_tokens", std::move(stops));
  return json;
}

// "experts MXFP4, attention BF16, embedding BF16, head BF16"
std::string weight_types(const Checkpoint& checkpoint) {
  const bool published = checkpoint.weight_layout() == families::WeightLayout::kPublished &&
                         checkpoint.config().family->expert_files == families::ExpertFiles::kMxfp4;
  const std::vector<families::ExpectedTensor> tensors = checkpoint.expected();
  std::string text;
  for (const auto& [kind, name] : {std::pair(families::TensorKind::kExperts, "experts"),
                                   std::pair(families::TensorKind::kMlp, "MLPs"),
                                   std::pair(families::TensorKind::kAttention, "attention"),
                                   std::pair(families::TensorKind::kEmbedding, "embedding"),
                                   std::pair(families::TensorKind::kHead, "head")}) {
    const families::ExpectedTensor* largest = nullptr;  // which is no bias
    for (const families::ExpectedTensor& tensor : tensors) {
      if (tensor.kind != kind) continue;
      if (largest == nullptr || tensor.bytes() > largest->bytes()) largest = &tensor;
    }
    if (largest == nullptr) continue;
    // The published files call their blocks bytes.
    const bool is_blocks = published && kind == families::TensorKind::kExperts;
    const bool is_compact = largest->dtype == tensor::DType::kCompactBf16;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        is_blocks    ? "MXFP4"
                        : is_compact ? "BF16 (held in 12 bits)"
                                     : tensor::dtype_name(largest->dtype));
  }
  return text;
}

}  // namespace pelton::checkpoint
