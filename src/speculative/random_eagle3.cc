#include "speculative/random_eagle3.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/output_file.h"
#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "speculative/eagle3_config.h"
#include "tensor/bits.h"

namespace pelton::speculative {
namespace {

using checkpoint::PlannedTensor;
using tensor::DType;

constexpr int kDraftVocabMax = 32'000;

struct RandomTensor {
  PlannedTensor planned;
  double deviation = 0;
  double mean = 0;
};

// Deviations keep the residual stream and the logits at the size that trained heads have.
std::vector<RandomTensor> tensors_of(const Eagle3Config& config, bool own_embedding) {
  const families::ModelConfig& layer = config.layer;
  const int64_t hidden = layer.hidden_size;
  std::vector<RandomTensor> tensors;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols, double gain) {
    tensors.push_back({{name + ".weight", DType::kBf16, {rows, cols}},
                       gain / std::sqrt(static_cast<double>(cols))});
  };
  const auto vector = [&](const std::string& name, int64_t count, double deviation, double mean) {
    tensors.push_back({{name, DType::kBf16, {count}}, deviation, mean});
  };
  const auto norm = [&](const std::string& name, int64_t count) {
    vector(name + ".weight", count, 0.2, 1.0);
  };
  const std::string attention = "midlayer.self_attn.";
  matrix("fc", hidden, kEagle3Taps * hidden, 0.7);
  if (config.norm_before_fc) norm("input_norm", kEagle3Taps * hidden);
  for (int i = 0; config.fc_norm && i < kEagle3Taps; ++i)
    norm(fmt::format("fc_norm.{}", i), hidden);
  for (const char* name : {"input_layernorm", "hidden_norm", "post_attention_layernorm"}) {
    norm(std::string("midlayer.") + name, hidden);
  }
  const std::array<std::pair<const char*, int64_t>, 3> projections = {
      {{"q_proj", layer.q_size()}, {"k_proj", layer.kv_size()}, {"v_proj", layer.kv_size()}}};
  for (const auto& [name, rows] : projections) {
    matrix(attention + name, rows, 2 * hidden, 1.3);
    if (config.attention_bias) vector(attention + name + ".bias", rows, 0.3, 0.0);
  }
  matrix(attention + "o_proj", hidden, layer.q_size(), 1.2);
  if (config.attention_bias) vector(attention + "o_proj.bias", hidden, 0.2, 0.0);
  matrix("midlayer.mlp.gate_proj", layer.intermediate_size, hidden, 1.3);
  matrix("midlayer.mlp.up_proj", layer.intermediate_size, hidden, 1.3);
  matrix("midlayer.mlp.down_proj", hidden, layer.intermediate_size, 0.8);
  norm("norm", hidden);
  matrix("lm_head", config.draft_vocab_size, hidden, 2.5);
  if (own_embedding) {
    tensors.push_back({{"embed_tokens.weight", DType::kBf16, {layer.vocab_size, hidden}}, 1.0});
  }
  if (config.draft_vocab_size < layer.vocab_size) {
    tensors.push_back({{"d2t", DType::kI64, {config.draft_vocab_size}}});
  }
  return tensors;
}

Result<void> write(std::FILE* file, const void* bytes, size_t count) {
  if (std::fwrite(bytes, 1, count, file) == count) return {};
  return Error{ErrorCode::kIo, "cannot write the head's tensors: is the disk full?"};
}

// Uniform over +-sqrt(3) deviations: cheaper than normal, and the same to a dot product.
Result<void> write_tensor(std::FILE* file, const RandomTensor& tensor, uint64_t seed) {
  int64_t elements = 1;
  for (const int64_t size : tensor.planned.shape) elements *= size;
  const uint64_t stream = seed ^ base::fnv1a64(tensor.planned.name);
  constexpr int64_t kPiece = 1 << 16;
  std::vector<uint16_t> piece;
  for (int64_t begin = 0; begin < elements; begin += kPiece) {
    piece.clear();
    for (int64_t i = begin; i < std::min(elements, begin + kPiece); ++i) {
      const double unit = 2 * base::random_unit(stream, static_cast<uint64_t>(i)) - 1;
      piece.push_back(tensor::float_to_bf16(
          static_cast<float>(tensor.mean + unit * std::sqrt(3.0) * tensor.deviation)));
    }
    TRY(write(file, piece.data(), piece.size() * sizeof(uint16_t)));
  }
  return {};
}

// Ascending ids, spread over the target's vocabulary.
std::vector<int64_t> draft_offsets(const Eagle3Config& config) {
  const int64_t vocab = config.layer.vocab_size;
  std::vector<int64_t> offsets;
  for (int64_t id = 0; id < config.draft_vocab_size; ++id) {
    offsets.push_back(id * vocab / config.draft_vocab_size - id);
  }
  return offsets;
}

}  // namespace

Json random_eagle3_config(const Json& target) {
  Json config;
  config.set("architectures", Json::Array{Json("LlamaForCausalLMEagle3")});
  config.set("model_type", "llama");
  config.set("num_hidden_layers", 1);
  config.set("hidden_act", "silu");
  for (const char* key :
       {"hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling"}) {
    if (const Json* value = target.find(key)) config.set(key, *value);
  }
  const int64_t layers = target.integer("num_hidden_layers").value_or(0);
  Json::Array taps;
  for (const int64_t tap : {int64_t{2}, layers / 2, layers - 3}) {
    taps.push_back(Json(std::clamp<int64_t>(tap, 0, layers)));
  }
  Json eagle;
  eagle.set("eagle_aux_hidden_state_layer_ids", std::move(taps));
  config.set("eagle_config", std::move(eagle));
  const int64_t hidden = target.integer("hidden_size").value_or(0);
  const int64_t vocab = target.integer("vocab_size").value_or(0);
  config.set("intermediate_size", 6 * hidden);
  config.set("draft_vocab_size", std::min<int64_t>(vocab, kDraftVocabMax));
  return config;
}

Result<void> write_random_eagle3(const Json& json, const families::ModelConfig& target,
                                 uint64_t seed, const std::string& folder) {
  TRY_ASSIGN(const Eagle3Config config, parse_eagle3_config(json, target, folder + "/config.json"));
  const bool own_embedding = json.boolean("embed_tokens").value_or(false);
  const std::vector<RandomTensor> tensors = tensors_of(config, own_embedding);
  std::vector<PlannedTensor> planned;
  for (const RandomTensor& tensor : tensors) planned.push_back(tensor.planned);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error{ErrorCode::kIo, fmt::format("cannot make {}: {}", folder, error.message())};
  }
  TRY_ASSIGN(const base::OutputFile file,
             base::open_output(folder + "/model.safetensors", base::OutputMode::kReplace));
  const std::string header = checkpoint::safetensors_header(planned);
  TRY(write(file.get(), header.data(), header.size()));
  for (const RandomTensor& tensor : tensors) {
    if (tensor.planned.dtype == DType::kI64) {
      const std::vector<int64_t> offsets = draft_offsets(config);
      TRY(write(file.get(), offsets.data(), offsets.size() * sizeof(int64_t)));
      continue;
    }
    TRY(write_tensor(file.get(), tensor, seed));
  }
  if (std::fflush(file.get()) != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot write {}/model.safetensors", folder)};
  }
  return base::write_file(folder + "/config.json", json.dump() + "\n");
}

}  // namespace pelton::speculative
