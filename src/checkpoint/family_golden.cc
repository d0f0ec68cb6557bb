#include "checkpoint/family_golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/hash_stream.h"
#include "checkpoint/safetensors.h"
#include "families/expected_tensors.h"
#include "families/family.h"
#include "families/tensor_names.h"
#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

using families::ModelConfig;
using tensor::DType;

// Every operation below stands in the order and precision of the formula: a different rounding
// would be a different file. Tensors come in the formula's order, under published names.

// Standard deviation of the sum of four uniform 16-bit numbers.
double sum_deviation() {
  return std::sqrt(4.0 * (65536.0 * 65536.0 - 1.0) / 12.0);
}

std::vector<double> normals(uint64_t seed, const std::string& name, int64_t count, double deviation,
                            double mean) {
  const HashStream hashes(seed, name);
  const double scale = deviation / sum_deviation();
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = hashes.at(i);
    const int64_t sum = static_cast<int64_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                             ((bits >> 32) & 0xFFFF) + (bits >> 48)) -
                        131070;
    values[i] = static_cast<double>(sum) * scale;
    if (mean != 0.0) values[i] += mean;
  }
  return values;
}

// The code of the nearest E4M3 number, the even one of two; |x| <= 448.
uint8_t nearest_e4m3(double x) {
  const double size = std::abs(x);
  int low = 0;
  int high = 126;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (double{tensor::e4m3_to_float(static_cast<uint8_t>(middle))} <= size ? low : high) = middle;
  }
  const double below = tensor::e4m3_to_float(static_cast<uint8_t>(low));
  const double above = tensor::e4m3_to_float(static_cast<uint8_t>(high));
  const double between = (below + above) / 2;
  const bool up = size > between || (size == between && low % 2 != 0);
  return static_cast<uint8_t>((up ? high : low) | (std::signbit(x) ? 0x80 : 0));
}

struct Made {
  PlannedTensor tensor;
  std::vector<uint8_t> bytes;
};

template <typename T>
std::vector<uint8_t> as_bytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Maker {
 public:
  // `golden`: case.json. Its prefix stands in place of "model.".
  Maker(const ModelConfig& config, const Json& golden)
      : config_(config),
        golden_(golden),
        seed_(static_cast<uint64_t>(golden.integer("seed").value_or(0))),
        prefix_(golden.string("prefix").value_or(config.is_encoder() ? "" : "model.")) {}

  std::vector<Made> make() {
    if (config_.is_encoder()) return make_encoder();
    const double hidden = config_.hidden_size;
    // Small where the head is tied, so that logits do not just repeat the token.
    const double embedding = is_gemma() ? 0.03 : 0.1;
    const double final_gain = config_.tied_head ? 2.5 / (embedding * std::sqrt(hidden)) : 1.0;
    bf16("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size}, embedding);
    for (int i = 0; i < config_.layer_count(); ++i) layer(i, config_.layers[i].has_experts);
    for (int i = 0; i < config_.draft_layer_count; ++i) draft(config_.layer_count() + i);
    bf16("model.norm.weight", {config_.hidden_size}, 0.15 * final_gain,
         final_gain + norm_mean() - 1.0);
    if (!config_.tied_head) {
      bf16("lm_head.weight", {config_.vocab_size, config_.hidden_size}, 2.5 / std::sqrt(hidden));
    }
    return std::move(made_);
  }

 private:
  using Shape = std::vector<int64_t>;

  bool is_gemma() const { return config_.norm_adds_one; }
  double norm_mean() const { return is_gemma() ? 0.0 : 1.0; }

  static int64_t count_of(const Shape& shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }

  void add(const std::string& name, DType dtype, const Shape& shape, std::vector<uint8_t> bytes) {
    made_.push_back({{stored_name(name), dtype, shape}, std::move(bytes)});
  }

  std::string stored_name(const std::string& name) const {
    if (config_.is_encoder()) return name;  // the file's already
    const std::string published = families::published_name(config_, name);
    constexpr std::string_view kModel = "model.";
    if (!published.starts_with(kModel)) return published;
    return prefix_ + published.substr(kModel.size());
  }

  std::vector<double> values(const std::string& name, const Shape& shape, double deviation,
                             double mean = 0.0) const {
    return normals(seed_, stored_name(name), count_of(shape), deviation, mean);
  }

  void bf16(const std::string& name, const Shape& shape, double deviation, double mean = 0.0) {
    std::vector<uint16_t> bits;
    for (const double value : values(name, shape, deviation, mean)) {
      bits.push_back(tensor::float_to_bf16(static_cast<float>(value)));
    }
    add(name, DType::kBf16, shape, as_bytes(bits));
  }

  void f32(const std::string& name, const Shape& shape, double deviation, double mean) {
    const std::vector<double> exact = values(name, shape, deviation, mean);
    add(name, DType::kF32, shape, as_bytes(std::vector<float>(exact.begin(), exact.end())));
  }

  // A product's weight: bf16, or FP8 with a scale for each block of 128 x 128.
  void product(const std::string& name, int64_t rows, int64_t cols, double deviation) {
    if (config_.quantization == families::WeightQuantization::kNone) {
      return bf16(name, {rows, cols}, deviation);
    }
    const std::vector<double> exact = values(name, {rows, cols}, deviation);
    constexpr int64_t kBlock = families::kF8Block;
    const int64_t block_cols = (cols + kBlock - 1) / kBlock;
    std::vector<float> scales(static_cast<size_t>((rows + kBlock - 1) / kBlock * block_cols));
    const auto block_of = [&](int64_t i) {
      return static_cast<size_t>(i / cols / kBlock * block_cols + i % cols / kBlock);
    };
    std::vector<double> largest(scales.size());
    for (int64_t i = 0; i < rows * cols; ++i) {
      double& most = largest[block_of(i)];
      most = std::max(most, std::abs(exact[static_cast<size_t>(i)]));
    }
    for (size_t b = 0; b < scales.size(); ++b) scales[b] = static_cast<float>(largest[b] / 448);
    std::vector<uint8_t> codes(exact.size());
    for (int64_t i = 0; i < rows * cols; ++i) {
      const double scaled = exact[static_cast<size_t>(i)] / double{scales[block_of(i)]};
      codes[static_cast<size_t>(i)] = nearest_e4m3(std::clamp(scaled, -448.0, 448.0));
    }
    add(name, DType::kF8E4m3, {rows, cols}, std::move(codes));
    add(name + "_scale_inv", DType::kF32, {(rows + kBlock - 1) / kBlock, block_cols},
        as_bytes(scales));
  }

  void mlp(const std::string& prefix, int64_t inner) {
    const int64_t hidden = config_.hidden_size;
    const double root = std::sqrt(static_cast<double>(hidden));
    product(prefix + "gate_proj.weight", inner, hidden, 1.5 / root);
    product(prefix + "up_proj.weight", inner, hidden, 1.5 / root);
    product(prefix + "down_proj.weight", hidden, inner,
            0.8 / std::sqrt(static_cast<double>(inner)));
  }

  void attention(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t q = config_.q_size();
    const int64_t kv = config_.kv_size();
    const double root = std::sqrt(static_cast<double>(hidden));
    const double gain = config_.qk_norm ? 1.0 : 1.5;
    product(prefix + "q_proj.weight", q, hidden, gain / root);
    product(prefix + "k_proj.weight", kv, hidden, gain / root);
    product(prefix + "v_proj.weight", kv, hidden, 1.2 / root);
    product(prefix + "o_proj.weight", hidden, q, 1.2 / std::sqrt(static_cast<double>(q)));
    if (config_.qkv_bias) {
      bf16(prefix + "q_proj.bias", {q}, 0.7);
      bf16(prefix + "k_proj.bias", {kv}, 0.7);
      bf16(prefix + "v_proj.bias", {kv}, 0.5);
    }
    if (config_.attn_out_bias) bf16(prefix + "o_proj.bias", {hidden}, 0.2);
    if (!config_.qk_norm) return;
    for (const char* name : {"q_norm.weight", "k_norm.weight"}) {
      bf16(prefix + name, {config_.head_size}, 0.3, 1.6 + norm_mean() - 1.0);
    }
  }

  void latent_attention(const std::string& prefix) {
    const families::LatentConfig& latent = config_.latent;
    const int64_t hidden = config_.hidden_size;
    const int64_t heads = config_.head_count;
    const int64_t q = heads * (latent.nope_size + latent.rope_size);
    const double root = std::sqrt(static_cast<double>(hidden));
    if (latent.q_rank > 0) {
      product(prefix + "q_a_proj.weight", latent.q_rank, hidden, 1.0 / root);
      bf16(prefix + "q_a_layernorm.weight", {latent.q_rank}, 0.2, 1.0);
      product(prefix + "q_b_proj.weight", q, latent.q_rank,
              1.4 / std::sqrt(static_cast<double>(latent.q_rank)));
    } else {
      product(prefix + "q_proj.weight", q, hidden, 1.4 / root);
    }
    product(prefix + "kv_a_proj_with_mqa.weight", latent.kv_rank + latent.rope_size, hidden,
            1.4 / root);
    bf16(prefix + "kv_a_layernorm.weight", {latent.kv_rank}, 0.2, 1.0);
    product(prefix + "kv_b_proj.weight", heads * (latent.nope_size + latent.value_size),
            latent.kv_rank, 1.2 / std::sqrt(static_cast<double>(latent.kv_rank)));
    const int64_t mixed = heads * latent.value_size;
    product(prefix + "o_proj.weight", hidden, mixed, 1.2 / std::sqrt(static_cast<double>(mixed)));
  }

  void experts(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t count = config_.expert_count;
    const double gain = config_.is_latent() ? 1.5 : 2.0;
    bf16(prefix + "router.weight", {count, hidden}, gain / std::sqrt(static_cast<double>(hidden)));
    if (config_.router.correction) {
      f32(prefix + "router.e_score_correction_bias", {count}, 0.1, 0.5);
    }
    for (int64_t e = 0; e < count; ++e) {
      mlp(fmt::format("{}experts.{}.", prefix, e), config_.expert_intermediate_size);
    }
    if (config_.shared_expert_count == 0) return;
    mlp(prefix + "shared_experts.",
        int64_t{config_.expert_intermediate_size} * config_.shared_expert_count);
  }

  void layer(int index, bool has_experts) {
    const std::string prefix = fmt::format("model.layers.{}.", index);
    const Shape hidden = {config_.hidden_size};
    bf16(prefix + "input_layernorm.weight", hidden, 0.2, norm_mean());
    if (config_.is_latent()) {
      latent_attention(prefix + "self_attn.");
    } else {
      attention(prefix + "self_attn.");
    }
    bf16(prefix + "post_attention_layernorm.weight", hidden, 0.2, norm_mean());
    if (config_.post_norms) {
      bf16(prefix + "pre_feedforward_layernorm.weight", hidden, 0.2, norm_mean());
      bf16(prefix + "post_feedforward_layernorm.weight", hidden, 0.2, norm_mean());
    }
    if (has_experts) return experts(prefix + "mlp.");
    mlp(prefix + "mlp.", config_.intermediate_size);
    if (!config_.mlp_bias) return;
    for (const char* name : {"gate_proj.bias", "up_proj.bias"}) {
      bf16(prefix + "mlp." + name, {config_.intermediate_size}, 0.5);
    }
    bf16(prefix + "mlp.down_proj.bias", hidden, 0.2);
  }

  // Multi-token prediction's, which logits do not need.
  void draft(int index) {
    layer(index, true);
    const std::string prefix = fmt::format("model.layers.{}.", index);
    const int64_t hidden = config_.hidden_size;
    for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}) {
      bf16(prefix + name, {hidden}, 0.2, 1.0);
    }
    product(prefix + "eh_proj.weight", hidden, 2 * hidden,
            1.0 / std::sqrt(2.0 * static_cast<double>(hidden)));
    bf16(prefix + "embed_tokens.weight", {config_.vocab_size, hidden}, 0.1);
    bf16(prefix + "shared_head.head.weight", {config_.vocab_size, hidden}, 0.1);
  }

  void layer_norm(const std::string& name) {
    bf16(name + ".weight", {config_.hidden_size}, 0.2, 1.0);
    bf16(name + ".bias", {config_.hidden_size}, 0.2);
  }

  void biased(const std::string& name, int64_t rows, int64_t columns, double gain) {
    bf16(name + ".weight", {rows, columns}, gain / std::sqrt(static_cast<double>(columns)));
    bf16(name + ".bias", {rows}, 0.3);
  }

  // BERT's names, which are not translated.
  std::vector<Made> make_encoder() {
    const int64_t hidden = config_.hidden_size;
    const std::string embeddings = prefix_ + "embeddings.";
    bf16(embeddings + "word_embeddings.weight", {config_.vocab_size, hidden}, 0.5);
    bf16(embeddings + "position_embeddings.weight", {config_.encoder.position_rows, hidden}, 0.3);
    bf16(embeddings + "token_type_embeddings.weight", {config_.encoder.type_rows, hidden}, 0.3);
    layer_norm(embeddings + "LayerNorm");
    for (int i = 0; i < config_.layer_count(); ++i) {
      const std::string layer = fmt::format("{}encoder.layer.{}.", prefix_, i);
      for (const char* name : {"query", "key", "value"}) {
        biased(layer + "attention.self." + name, hidden, hidden, 1.2);
      }
      biased(layer + "attention.output.dense", hidden, hidden, 1.0);
      layer_norm(layer + "attention.output.LayerNorm");
      biased(layer + "intermediate.dense", config_.intermediate_size, hidden, 1.3);
      biased(layer + "output.dense", hidden, config_.intermediate_size, 1.3);
      layer_norm(layer + "output.LayerNorm");
    }
    const std::string head = golden_.string("head").value_or("");
    if (head == "xlmr") {
      biased("classifier.dense", hidden, hidden, 1.0);
      biased("classifier.out_proj", config_.label_count, hidden, 1.5);
    } else if (head == "bert" || golden_.boolean("pooler").value_or(false)) {
      biased(prefix_ + "pooler.dense", hidden, hidden, 1.0);
      if (head == "bert") biased("classifier", config_.label_count, hidden, 1.5);
    }
    return std::move(made_);
  }

  const ModelConfig& config_;
  const Json& golden_;
  const uint64_t seed_;
  const std::string prefix_;
  std::vector<Made> made_;
};

}  // namespace

Result<std::vector<uint8_t>> family_golden_safetensors(const Json& config, const Json& golden) {
  TRY_ASSIGN(const ModelConfig parsed,
             families::parse_model_config(config, nullptr, "golden config"));
  const std::vector<Made> made = Maker(parsed, golden).make();
  std::vector<PlannedTensor> plan;
  for (const Made& one : made) plan.push_back(one.tensor);
  const std::string header = safetensors_header(plan);
  std::vector<uint8_t> file(header.begin(), header.end());
  for (const Made& one : made) file.insert(file.end(), one.bytes.begin(), one.bytes.end());
  return file;
}

Result<void> write_family_golden(const std::string& case_folder, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", folder, error.message())};
  }
  TRY_ASSIGN(const std::string config, base::read_file(case_folder + "/config.json"));
  TRY_ASSIGN(const std::string golden, base::read_file(case_folder + "/case.json"));
  TRY_ASSIGN(const Json config_json, Json::parse(config));
  TRY_ASSIGN(const Json golden_json, Json::parse(golden));
  TRY_ASSIGN(const std::vector<uint8_t> file, family_golden_safetensors(config_json, golden_json));
  TRY(base::write_file(folder + "/config.json", config));
  return base::write_file(folder + "/model.safetensors",
                          {reinterpret_cast<const char*>(file.data()), file.size()});
}

}  // namespace pelton::checkpoint
