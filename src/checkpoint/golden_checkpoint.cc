#include "checkpoint/golden_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "checkpoint/hash_stream.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weight_scales.h"
#include "families/expected_tensors.h"
#include "families/model_config.h"
#include "families/published_config.h"
#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

// Every operation below stands in the order and precision of the formula: a different rounding
// would be a different file.

// Standard deviation of the sum of four uniform 16-bit numbers.
double sum_deviation() {
  return std::sqrt(4.0 * (65536.0 * 65536.0 - 1.0) / 12.0);
}

int32_t lane_sum(uint64_t bits) {
  return static_cast<int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) +
                              (bits >> 48)) -
         131070;
}

std::vector<double> normals(const HashStream& stream, int64_t count, Normal normal) {
  const double scale = normal.deviation / sum_deviation();
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(lane_sum(stream.at(i))) * scale;
    if (normal.mean != 0.0) values[i] += normal.mean;
  }
  return values;
}

uint16_t to_bf16(double value) {
  return tensor::float_to_bf16(static_cast<float>(value));
}

std::vector<uint16_t> to_bf16(std::span<const double> values) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (const double value : values) bits.push_back(to_bf16(value));
  return bits;
}

template <typename T>
std::vector<uint8_t> as_bytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The indices of the `values`, smallest value first.
std::vector<int> sorted_indices(std::span<const uint64_t> values) {
  std::vector<int> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int a, int b) { return values[a] < values[b]; });
  return indices;
}

std::vector<int> hashed_permutation(const HashStream& stream, uint64_t first, int count) {
  std::vector<uint64_t> hashes;
  for (int i = 0; i < count; ++i) hashes.push_back(stream.at(first + static_cast<uint64_t>(i)));
  return sorted_indices(hashes);
}

// count values from 1 to 0.7, as numpy.linspace rounds them.
std::vector<double> strengths(double amplitude, int count) {
  std::vector<double> values;
  const double step = count > 1 ? (0.7 - 1.0) / (count - 1) : 0.0;
  for (int i = 0; i < count; ++i) {
    const double value = count > 1 && i == count - 1 ? 0.7 : static_cast<double>(i) * step + 1.0;
    values.push_back(amplitude * value);
  }
  return values;
}

class GoldenWeights {
 public:
  GoldenWeights(const families::ModelConfig& config, uint64_t seed) : config_(config), seed_(seed) {
    const double hidden = config.hidden_size;
    const double amplitude =
        std::max(0.45 * std::sqrt(hidden), std::min(18.0, 0.9 * std::sqrt(hidden)));
    strength_ = strengths(amplitude, config.experts_per_token);
    double squares = 0.0;
    for (const double s : strength_) squares += s * s;
    router_gain_ = 5.0 * std::sqrt(1.0 + squares / hidden) / amplitude;
    directions_ =
        normals(stream("expert_directions"), int64_t{config.expert_count} * config.hidden_size,
                {1.0 / std::sqrt(hidden), 0.0});
  }

  std::vector<uint8_t> make(const families::ExpectedTensor& tensor) const {
    const std::string& name = tensor.name;
    if (name == "model.embed_tokens.weight") return as_bytes(embedding());
    if (name.ends_with("router.weight")) return as_bytes(router(layer_of(name)));
    if (name.ends_with("_blocks")) return blocks(tensor);
    if (name.ends_with("_scales")) return scales(tensor);
    return as_bytes(
        to_bf16(normals(stream(name), tensor.parameters(), weight_distribution(config_, name))));
  }

 private:
  HashStream stream(std::string_view name) const { return HashStream(seed_, name); }

  static int layer_of(const std::string& name) {
    return std::stoi(name.substr(std::strlen("model.layers.")));
  }

  // N(0,1) plus, for each token, its preferred experts' directions with descending strength.
  std::vector<uint16_t> embedding() const {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    std::vector<double> x = normals(stream("model.embed_tokens.weight"),
                                    int64_t{config_.vocab_size} * config_.hidden_size, {1.0, 0.0});
    const HashStream preferred = stream("preferred_experts");
    for (int token = 0; token < config_.vocab_size; ++token) {
      const std::vector<int> order = hashed_permutation(
          preferred, static_cast<uint64_t>(token) * static_cast<uint64_t>(config_.expert_count),
          config_.expert_count);
      double* const row = x.data() + static_cast<size_t>(token) * hidden;
      for (size_t j = 0; j < strength_.size(); ++j) {
        const double* const direction = directions_.data() + static_cast<size_t>(order[j]) * hidden;
        for (size_t i = 0; i < hidden; ++i) row[i] += strength_[j] * direction[i];
      }
    }
    return to_bf16(x);
  }

  // Each expert listens to one direction; which one is shuffled from layer to layer.
  std::vector<uint16_t> router(int layer) const {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    const std::vector<int> order =
        hashed_permutation(stream(fmt::format("router_perm.{}", layer)), 0, config_.expert_count);
    std::vector<uint16_t> rows;
    for (const int direction : order) {
      for (size_t i = 0; i < hidden; ++i) {
        rows.push_back(
            to_bf16(router_gain_ * directions_[static_cast<size_t>(direction) * hidden + i]));
      }
    }
    return rows;
  }

  std::vector<uint8_t> blocks(const families::ExpectedTensor& tensor) const {
    const HashStream hashes = stream(tensor.name);
    std::vector<uint64_t> words(static_cast<size_t>(tensor.bytes()) / 8);
    for (size_t i = 0; i < words.size(); ++i) words[i] = hashes.at(i);
    return as_bytes(words);
  }

  // Nibbles are uniform, so the scales set the deviation: a mix of two neighbouring exponents, and
  // one block in 256 six binades smaller.
  std::vector<uint8_t> scales(const families::ExpectedTensor& tensor) const {
    const Mxfp4Scale scale = mxfp4_scale(config_, tensor.name);
    const auto limit = static_cast<uint64_t>(scale.share_of_next * (1 << 24));
    const HashStream hashes = stream(tensor.name);
    std::vector<uint8_t> values(static_cast<size_t>(tensor.bytes()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t hash = hashes.at(i);
      values[i] = static_cast<uint8_t>(scale.exponent + ((hash >> 40) < limit ? 1 : 0) -
                                       ((hash & 0xFF) == 0 ? 6 : 0));
    }
    return values;
  }

  const families::ModelConfig& config_;
  const uint64_t seed_;
  std::vector<double> strength_;
  double router_gain_ = 0.0;
  std::vector<double> directions_;  // [experts, hidden]
};

using Tensors = std::map<std::string, std::vector<uint8_t>>;

// Float32 sum in NumPy's order (eight running sums in blocks of 128, halves above).
float pairwise_sum(std::span<const float> values) {
  const size_t n = values.size();
  if (n > 128) {
    const size_t half = n / 2 - n / 2 % 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  CHECK(n >= 8);
  std::array<float, 8> r;
  std::copy_n(values.begin(), 8, r.begin());
  size_t i = 8;
  for (; i < n - n % 8; i += 8) {
    for (size_t j = 0; j < 8; ++j) r[j] += values[i + j];
  }
  float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

// Two residual channels get a large constant, two a hundred times wilder values; the norms' gains
// undo that on average, so that one activation in a few blocks stands far out of its neighbours.
class Outlier {
 public:
  Outlier(const families::ModelConfig& config, Tensors& tensors)
      : config_(config), tensors_(tensors) {}

  void apply() {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    const auto vocab = static_cast<size_t>(config_.vocab_size);
    rms_ = std::sqrt((30000.0 * 30000.0 + 20000.0 * 20000.0) / static_cast<double>(hidden));
    base_ = rest_rms();
    change("model.embed_tokens.weight", [&](std::span<float> x) {
      for (size_t token = 0; token < vocab; ++token) {
        for (const Constant& c : kConstants) x[token * hidden + c.channel] = c.value;
        for (const size_t channel : kWild) x[token * hidden + channel] *= 100.0f;
      }
    });
    for (int layer = 0; layer < config_.layer_count(); ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      for (const char* name : {"self_attn.o_proj.weight", "self_attn.o_proj.bias"}) {
        change(prefix + name, [&](std::span<float> x) {
          const size_t width = x.size() / hidden;
          for (const size_t channel : kWild) {
            for (size_t i = 0; i < width; ++i) x[channel * width + i] *= 100.0f;
          }
        });
      }
      norm(prefix + "input_layernorm.weight", {12.0, 8.0}, 3.0);
      norm(prefix + "post_attention_layernorm.weight", {12.0, 8.0}, 3.0);
    }
    norm("model.norm.weight", {1.0, 1.0}, 1.0);
  }

 private:
  struct Constant {
    size_t channel;
    float value;
  };
  static constexpr std::array<Constant, 2> kConstants = {{{5, 30000.0f}, {133, -20000.0f}}};
  static constexpr std::array<size_t, 2> kWild = {261, 421};

  // The embedding's rms over all other channels, in float32, channel by channel.
  float rest_rms() const {
    const std::vector<uint8_t>& bytes = tensors_.at("model.embed_tokens.weight");
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    const auto vocab = static_cast<size_t>(config_.vocab_size);
    std::vector<float> squares;
    for (size_t channel = 0; channel < hidden; ++channel) {
      if (channel == kConstants[0].channel || channel == kConstants[1].channel ||
          channel == kWild[0] || channel == kWild[1]) {
        continue;
      }
      for (size_t token = 0; token < vocab; ++token) {
        uint16_t bits;
        std::memcpy(&bits, bytes.data() + 2 * (token * hidden + channel), sizeof bits);
        const float value = tensor::bf16_to_float(bits);
        squares.push_back(value * value);
      }
    }
    const double mean =
        static_cast<double>(pairwise_sum(squares)) / static_cast<double>(squares.size());
    return std::sqrt(static_cast<float>(mean));
  }

  void norm(const std::string& name, std::array<double, 2> constant_gain, double wild_gain) {
    change(name, [&](std::span<float> x) {
      const auto gain = static_cast<float>(rms_ / static_cast<double>(base_));
      for (float& value : x) value *= gain;
      for (size_t i = 0; i < kConstants.size(); ++i) {
        x[kConstants[i].channel] = static_cast<float>(
            constant_gain[i] * rms_ / std::abs(static_cast<double>(kConstants[i].value)));
      }
      for (const size_t channel : kWild) {
        x[channel] = static_cast<float>(wild_gain * rms_ / (100.0 * static_cast<double>(base_)));
      }
    });
  }

  template <typename Edit>
  void change(const std::string& name, Edit edit) {
    std::vector<uint8_t>& bytes = tensors_.at(name);
    std::vector<uint16_t> bits(bytes.size() / 2);
    std::memcpy(bits.data(), bytes.data(), bytes.size());
    std::vector<float> values;
    for (const uint16_t b : bits) values.push_back(tensor::bf16_to_float(b));
    edit(std::span<float>(values));
    std::transform(values.begin(), values.end(), bits.begin(), tensor::float_to_bf16);
    std::memcpy(bytes.data(), bits.data(), bytes.size());
  }

  const families::ModelConfig& config_;
  Tensors& tensors_;
  double rms_ = 0.0;   // of the residual stream, with the constants
  float base_ = 0.0f;  // of its other channels
};

Json generation_config(const Json& config) {
  const auto pad = config.integer("pad_token_id").value_or(0);
  Json generation;
  generation.set("bos_token_id", pad - 1).set("do_sample", true);
  generation.set("eos_token_id", Json::Array{*config.find("eos_token_id"), pad});
  generation.set("pad_token_id", pad).set("transformers_version", "4.55.0.dev0");
  return generation;
}

}  // namespace

Json golden_config(GoldenCase golden) {
  Json config = families::published_config("gpt-oss-20b").value();
  const bool tiny = golden == GoldenCase::kTiny;
  const int vocab = tiny ? 512 : 2048;
  const int width = tiny ? 128 : 512;
  const int chosen = tiny ? 2 : 4;
  config.set("hidden_size", width).set("intermediate_size", width);
  config.set("num_attention_heads", tiny ? 4 : 16).set("num_key_value_heads", 2);
  config.set("head_dim", tiny ? 32 : 64).set("num_local_experts", tiny ? 8 : 32);
  config.set("num_experts_per_tok", chosen).set("experts_per_token", chosen);
  config.set("vocab_size", vocab).set("sliding_window", tiny ? 16 : 128);
  config.set("eos_token_id", vocab - 2).set("pad_token_id", vocab - 1);
  families::set_layer_count(config, tiny ? 2 : 4);
  return config;
}

std::vector<uint8_t> golden_safetensors(GoldenCase golden) {
  const families::ModelConfig config =
      families::parse_model_config(golden_config(golden), nullptr, "golden config").value();
  const GoldenWeights weights(config, golden == GoldenCase::kTiny ? 1 : 2);
  const std::vector<families::ExpectedTensor> expected =
      families::expected_tensors(config, families::WeightLayout::kPublished);
  Tensors tensors;
  for (const families::ExpectedTensor& tensor : expected)
    tensors[tensor.name] = weights.make(tensor);
  if (golden == GoldenCase::kOutlier) Outlier(config, tensors).apply();

  std::vector<PlannedTensor> plan;
  for (const families::ExpectedTensor& tensor : expected) {
    plan.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const std::string header = safetensors_header(plan);
  std::vector<uint8_t> file(header.begin(), header.end());
  for (const families::ExpectedTensor& tensor : expected) {
    const std::vector<uint8_t>& bytes = tensors[tensor.name];
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  return file;
}

Result<void> write_golden_checkpoint(GoldenCase golden, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", folder, error.message())};
  }
  const Json config = golden_config(golden);
  TRY(base::write_file(folder + "/config.json", config.dump()));
  TRY(base::write_file(folder + "/generation_config.json", generation_config(config).dump()));
  const std::vector<uint8_t> file = golden_safetensors(golden);
  return base::write_file(folder + "/model.safetensors",
                          {reinterpret_cast<const char*>(file.data()), file.size()});
}

}  // namespace pelton::checkpoint
