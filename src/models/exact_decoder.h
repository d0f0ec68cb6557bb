// A second evaluation of gpt-oss: in float64,
// from config.json itself and the tensors' values, by the published formulas alone, without any
// layer, kernel or parsed configuration of this project's. For tests: what the engine computes is
// compared with it for shapes of which there is no golden case.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/token_id.h"
#include "checkpoint/checkpoint.h"
#include "tensor/bits.h"

namespace pelton::models {

class ExactDecoder {
 public:
  using Vector = std::vector<double>;

  // `checkpoint` gives the tensors, and outlives it.
  ExactDecoder(const Json& config, const checkpoint::Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        hidden_(integer(config, "hidden_size")),
        heads_(integer(config, "num_attention_heads")),
        kv_heads_(config.integer("num_key_value_heads").value_or(heads_)),
        head_size_(config.integer("head_dim").value_or(hidden_ / heads_)),
        layers_(integer(config, "num_hidden_layers")),
        vocab_(integer(config, "vocab_size")),
        inner_(integer(config, "intermediate_size")),
        epsilon_(config.number("rms_norm_eps").value_or(1e-6)),
        window_(config.integer("sliding_window").value_or(0)),
        is_gpt_oss_(config.string("model_type") == "gpt_oss"),
        experts_(config.integer("num_local_experts").value_or(0)),
        chosen_(config.integer("num_experts_per_tok").value_or(0)),
        is_tied_(config.boolean("tie_word_embeddings").value_or(false)) {
    const double part = config.number("partial_rotary_factor").value_or(1.0);
    turning_ = static_cast<int64_t>(part * static_cast<double>(head_size_));
    find_frequencies(config);
  }

  // The logits at each of `positions`.
  std::vector<Vector> logits(const std::vector<TokenId>& tokens,
                             const std::vector<int64_t>& positions) {
    const auto count = static_cast<int64_t>(tokens.size());
    const Vector table = matrix("model.embed_tokens.weight");
    std::vector<Vector> x;
    for (const TokenId token : tokens) {
      const auto row = table.begin() + token * hidden_;
      x.emplace_back(row, row + hidden_);
    }
    std::vector<int64_t> all(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = i;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      // Behind the last layer nobody looks at the other positions.
      run_layer(layer, x, layer + 1 == layers_ ? positions : all);
    }
    const Vector norm = matrix("model.norm.weight");
    const Vector head = is_tied_ ? table : matrix("lm_head.weight");
    std::vector<Vector> out;
    for (const int64_t position : positions) {
      out.push_back(times(head, vocab_, normed(x[static_cast<size_t>(position)], norm), {}));
    }
    return out;
  }

 private:
  static int64_t integer(const Json& config, const char* key) {
    const auto value = config.integer(key);
    CHECK(value.has_value(), key);
    return *value;
  }

  // Whole, of any plain type; empty if there is none.
  Vector matrix(const std::string& name) const {
    const auto found = checkpoint_.tensors().find(name);
    if (found == checkpoint_.tensors().end()) return {};
    const tensor::TensorView& view = found->second;
    Vector values(static_cast<size_t>(view.element_count()));
    for (size_t i = 0; i < values.size(); ++i) {
      if (view.dtype == tensor::DType::kF32) {
        values[i] = view.as<float>()[i];
      } else {
        CHECK(view.dtype == tensor::DType::kBf16);
        values[i] = tensor::bf16_to_float(view.as<uint16_t>()[i]);
      }
    }
    return values;
  }

  // 32 numbers of four bits share a power of two: `name`_blocks (experts, rows, cols / 32, 16),
  // `name`_scales (experts, rows, cols / 32).
  Vector mxfp4(const std::string& name) const {
    constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
    const tensor::TensorView& blocks = checkpoint_.tensors().find(name + "_blocks")->second;
    const tensor::TensorView& scales = checkpoint_.tensors().find(name + "_scales")->second;
    Vector values;
    for (size_t block = 0; block < scales.bytes.size(); ++block) {
      const double scale = std::ldexp(1.0, scales.bytes[block] - 127);
      for (size_t b = 0; b < 16; ++b) {
        const uint8_t pair = blocks.bytes[block * 16 + b];
        values.push_back(kValues[pair & 15] * scale);
        values.push_back(kValues[pair >> 4] * scale);
      }
    }
    return values;
  }

  Vector normed(const Vector& x, const Vector& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon_);
    Vector out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }

  // weight (rows, x.size()) from `first` on, times x, plus bias if there is one.
  static Vector times(const Vector& weight, int64_t rows, const Vector& x, const Vector& bias,
                      int64_t first = 0) {
    Vector out(static_cast<size_t>(rows));
    const auto cols = static_cast<int64_t>(x.size());
    for (int64_t r = 0; r < rows; ++r) {
      const double* const row = weight.data() + first + r * cols;
      double sums[4] = {};  // apart: the additions do not wait for each other
      int64_t c = 0;
      for (; c + 4 <= cols; c += 4) {
        for (int64_t j = 0; j < 4; ++j) sums[j] += row[c + j] * x[static_cast<size_t>(c + j)];
      }
      for (; c < cols; ++c) sums[0] += row[c] * x[static_cast<size_t>(c)];
      out[static_cast<size_t>(r)] =
          sums[0] + sums[1] + sums[2] + sums[3] + (bias.empty() ? 0 : bias[static_cast<size_t>(r)]);
    }
    return out;
  }

  // Of each pair its frequency, and what cosines and sines are multiplied with (transformers'
  // modeling_rope_utils.py).
  void find_frequencies(const Json& config) {
    const double theta = config.number("rope_theta").value_or(10000.0);
    const auto size = static_cast<double>(turning_);
    for (int64_t i = 0; i < turning_ / 2; ++i) {
      frequencies_.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / size));
    }
    const Json* const scaling = config.find("rope_scaling");
    if (scaling == nullptr || !scaling->is_object()) return;
    std::string type = scaling->string("rope_type").value_or("");
    if (type.empty()) type = scaling->string("type").value_or("");
    const double factor = scaling->number("factor").value_or(1.0);
    double original = scaling->number("original_max_position_embeddings").value_or(0);
    if (original == 0) original = config.number("original_max_position_embeddings").value_or(0);
    CHECK(type == "yarn", type);
    // The pair that turns so often within the original context.
    const auto pair_of = [&](double turns) {
      return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    double low = pair_of(scaling->number("beta_fast").value_or(32));
    double high = pair_of(scaling->number("beta_slow").value_or(1));
    if (scaling->boolean("truncate").value_or(true)) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, size - 1);
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      frequencies_[i] = frequencies_[i] * (1 - ramp) + frequencies_[i] / factor * ramp;
    }
    concentration_ = 0.1 * std::log(factor) + 1;
  }

  // Elements i and i + turning / 2 of a head turn together.
  void rotate(double* head, int64_t position) const {
    for (int64_t i = 0; i < turning_ / 2; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[static_cast<size_t>(i)];
      const double cosine = std::cos(angle) * concentration_;
      const double sine = std::sin(angle) * concentration_;
      const double a = head[i];
      const double b = head[i + turning_ / 2];
      head[i] = a * cosine - b * sine;
      head[i + turning_ / 2] = b * cosine + a * sine;
    }
  }

  // `norm`: of each head, before it turns; may be empty.
  void turn_heads(Vector& rows, int64_t heads, const Vector& norm, int64_t position) const {
    for (int64_t h = 0; h < heads; ++h) {
      double* const head = rows.data() + h * head_size_;
      if (!norm.empty()) {
        const Vector one = normed(Vector(head, head + head_size_), norm);
        std::copy(one.begin(), one.end(), head);
      }
      rotate(head, position);
    }
  }

  void run_layer(int64_t layer, std::vector<Vector>& x, const std::vector<int64_t>& wanted) const {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string self = prefix + "self_attn.";
    const Vector norm = matrix(prefix + "input_layernorm.weight");
    const Vector k_weight = matrix(self + "k_proj.weight");
    const Vector v_weight = matrix(self + "v_proj.weight");
    const Vector k_bias = matrix(self + "k_proj.bias");
    const Vector v_bias = matrix(self + "v_proj.bias");
    const Vector k_norm = matrix(self + "k_norm.weight");
    std::vector<Vector> keys;
    std::vector<Vector> values;
    for (size_t i = 0; i < x.size(); ++i) {
      const Vector input = normed(x[i], norm);
      keys.push_back(times(k_weight, kv_heads_ * head_size_, input, k_bias));
      values.push_back(times(v_weight, kv_heads_ * head_size_, input, v_bias));
      turn_heads(keys.back(), kv_heads_, k_norm, static_cast<int64_t>(i));
    }
    const Vector q_weight = matrix(self + "q_proj.weight");
    const Vector q_bias = matrix(self + "q_proj.bias");
    const Vector q_norm = matrix(self + "q_norm.weight");
    const Vector o_weight = matrix(self + "o_proj.weight");
    const Vector o_bias = matrix(self + "o_proj.bias");
    const Vector sinks = matrix(self + "sinks");
    const int64_t window = is_gpt_oss_ && layer % 2 == 1 ? 0 : window_;
    const FeedForward feed_forward = read_feed_forward(prefix + "mlp.");
    const Vector second = matrix(prefix + "post_attention_layernorm.weight");
    for (const int64_t position : wanted) {
      Vector& row = x[static_cast<size_t>(position)];
      Vector query = times(q_weight, heads_ * head_size_, normed(row, norm), q_bias);
      turn_heads(query, heads_, q_norm, position);
      const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      const Vector mixed = attend(query, keys, values, first, position, sinks);
      add(row, times(o_weight, hidden_, mixed, o_bias), 1.0);
      const Vector input = normed(row, second);
      add_experts(row, input, feed_forward);
    }
  }

  static void add(Vector& to, const Vector& from, double weight) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += weight * from[i];
  }

  Vector attend(const Vector& query, const std::vector<Vector>& keys,
                const std::vector<Vector>& values, int64_t first, int64_t last,
                const Vector& sinks) const {
    Vector mixed(query.size());
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t kv = h / (heads_ / kv_heads_) * head_size_;
      Vector scores;
      for (int64_t j = first; j <= last; ++j) {
        double sum = 0;
        for (int64_t d = 0; d < head_size_; ++d) {
          sum += query[static_cast<size_t>(h * head_size_ + d)] *
                 keys[static_cast<size_t>(j)][static_cast<size_t>(kv + d)];
        }
        scores.push_back(sum / std::sqrt(static_cast<double>(head_size_)));
      }
      double highest = *std::max_element(scores.begin(), scores.end());
      if (!sinks.empty()) highest = std::max(highest, sinks[static_cast<size_t>(h)]);
      double total = sinks.empty() ? 0 : std::exp(sinks[static_cast<size_t>(h)] - highest);
      for (double& score : scores) total += score = std::exp(score - highest);
      for (int64_t j = first; j <= last; ++j) {
        const double weight = scores[static_cast<size_t>(j - first)] / total;
        for (int64_t d = 0; d < head_size_; ++d) {
          mixed[static_cast<size_t>(h * head_size_ + d)] +=
              weight * values[static_cast<size_t>(j)][static_cast<size_t>(kv + d)];
        }
      }
    }
    return mixed;
  }

  // The router, and both products of all experts.
  struct FeedForward {
    Vector router, router_bias;
    Vector gate, gate_bias;  // gpt-oss: rows 2i gate, 2i + 1 up
    Vector down, down_bias;
  };

  FeedForward read_feed_forward(const std::string& mlp) const {
    CHECK(is_gpt_oss_);
    return {.router = matrix(mlp + "router.weight"),
            .router_bias = matrix(mlp + "router.bias"),
            .gate = mxfp4(mlp + "experts.gate_up_proj"),
            .gate_bias = matrix(mlp + "experts.gate_up_proj_bias"),
            .down = mxfp4(mlp + "experts.down_proj"),
            .down_bias = matrix(mlp + "experts.down_proj_bias")};
  }

  void add_experts(Vector& row, const Vector& input, const FeedForward& of) const {
    const Vector scores = times(of.router, experts_, input, of.router_bias);
    std::vector<int64_t> order(scores.size());
    for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int64_t>(e);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(chosen_));
    double total = 0;
    for (const int64_t e : order) total += std::exp(scores[static_cast<size_t>(e)]);
    for (const int64_t e : order) {
      const auto slice = [&](const Vector& biases, int64_t rows) {
        return Vector(biases.begin() + e * rows, biases.begin() + (e + 1) * rows);
      };
      const Vector both = times(of.gate, 2 * inner_, input, slice(of.gate_bias, 2 * inner_),
                                e * 2 * inner_ * hidden_);
      Vector inner(static_cast<size_t>(inner_));
      for (size_t i = 0; i < inner.size(); ++i) {
        const double gate = std::min(both[2 * i], 7.0);
        const double up = std::clamp(both[2 * i + 1], -7.0, 7.0);
        inner[i] = gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
      }
      add(row, times(of.down, hidden_, inner, slice(of.down_bias, hidden_), e * hidden_ * inner_),
          std::exp(scores[static_cast<size_t>(e)]) / total);
    }
  }

  const checkpoint::Checkpoint& checkpoint_;
  const int64_t hidden_;
  const int64_t heads_;
  const int64_t kv_heads_;
  const int64_t head_size_;
  const int64_t layers_;
  const int64_t vocab_;
  const int64_t inner_;
  const double epsilon_;
  const int64_t window_;
  const bool is_gpt_oss_;
  const int64_t experts_;
  const int64_t chosen_;
  const bool is_tied_;
  int64_t turning_ = 0;
  Vector frequencies_;
  double concentration_ = 1.0;
};

}  // namespace pelton::models
