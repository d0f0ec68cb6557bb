#include "kernels/reference/reference_kernels.h"

#include <algorithm>
#include <cmath>

#include "kernels/weight_row.h"
#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

using tensor::bf16_to_float;
using tensor::float_to_bf16;

// Reads and writes one element of a KV layer, whatever its type.
class KvAccess {
 public:
  explicit KvAccess(const KvLayer& layer) : layer_(layer) {}

  float key(int32_t block, int head, int slot, int i) const {
    return read(base(block, head) + int64_t{i} * layer_.block_tokens + slot);
  }
  float value(int32_t block, int head, int slot, int i) const {
    return read(values(block, head) + int64_t{slot} * layer_.head_size + i);
  }
  void set_key(int32_t block, int head, int slot, int i, float x) const {
    write(base(block, head) + int64_t{i} * layer_.block_tokens + slot, x);
  }
  void set_value(int32_t block, int head, int slot, int i, float x) const {
    write(values(block, head) + int64_t{slot} * layer_.head_size + i, x);
  }

 private:
  int64_t base(int32_t block, int head) const {
    return block * layer_.block_elements() +
           int64_t{2} * head * layer_.block_tokens * layer_.head_size;
  }
  int64_t values(int32_t block, int head) const {
    return base(block, head) + int64_t{layer_.block_tokens} * layer_.head_size;
  }
  float read(int64_t at) const {
    if (layer_.dtype == tensor::DType::kF32) return static_cast<const float*>(layer_.data)[at];
    const uint16_t bits = static_cast<const uint16_t*>(layer_.data)[at];
    return layer_.dtype == tensor::DType::kF16 ? tensor::f16_to_float(bits) : bf16_to_float(bits);
  }
  void write(int64_t at, float x) const {
    if (layer_.dtype == tensor::DType::kF32) {
      static_cast<float*>(layer_.data)[at] = x;
    } else {
      static_cast<uint16_t*>(layer_.data)[at] =
          layer_.dtype == tensor::DType::kF16 ? tensor::float_to_f16(x) : float_to_bf16(x);
    }
  }

  const KvLayer& layer_;
};

class ReferenceKernels final : public Kernels {
 public:
  explicit ReferenceKernels(base::ThreadPool& pool) : pool_(pool) {}

  std::string_view name() const override { return "reference"; }
  tensor::DType kv_dtype() const override { return tensor::DType::kF32; }

  // Plain loops with a few rows of their own.
  void reserve(const ScratchShape&) override {}
  int64_t scratch_bytes() const override { return 0; }

  void embed(float* out, const TokenId* tokens, int token_count, const Matrix& table) override {
    const StoredMatrix matrix{table.data, nullptr, table.rows, table.cols, table.format};
    for (int t = 0; t < token_count; ++t) {
      read_weight_row(matrix, tokens[t], out + int64_t{t} * table.cols);
    }
  }

  void rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                float epsilon) override {
    for (int t = 0; t < tokens; ++t) {
      const float* row = x + int64_t{t} * hidden;
      double squares = 0;
      for (int i = 0; i < hidden; ++i) squares += double{row[i]} * row[i];
      const double scale = 1.0 / std::sqrt(squares / hidden + epsilon);
      for (int i = 0; i < hidden; ++i) {
        out[int64_t{t} * hidden + i] = static_cast<float>(row[i] * scale * weight[i]);
      }
    }
  }

  void linear(float* out, const float* x, const Linear& linear, int tokens,
              Output output) override {
    const Matrix& matrix = linear.weight;
    const StoredMatrix stored{matrix.data, nullptr, matrix.rows, matrix.cols, matrix.format};
    pool_.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
      std::vector<float> weight(static_cast<size_t>(matrix.cols));
      for (int64_t row = begin; row < end; ++row) {
        read_weight_row(stored, row, weight.data());
        const double bias = linear.bias != nullptr ? linear.bias[row] : 0.0f;
        for (int t = 0; t < tokens; ++t) {
          const double sum = dot(weight, x + int64_t{t} * matrix.cols, bias);
          float& to = out[int64_t{t} * matrix.rows + row];
          to = static_cast<float>(output == Output::kAccumulate ? to + sum : sum);
        }
      }
    });
  }

  void rotate(float* x, int64_t stride, const float* cos_sin, int tokens, int heads,
              int head_size) override {
    const int half = head_size / 2;
    for (int t = 0; t < tokens; ++t) {
      const float* cosine = cos_sin + int64_t{t} * head_size;
      const float* sine = cosine + half;
      for (int h = 0; h < heads; ++h) {
        float* head = x + t * stride + int64_t{h} * head_size;
        for (int i = 0; i < half; ++i) {
          const double a = head[i];
          const double b = head[i + half];
          head[i] = static_cast<float>(a * cosine[i] - b * sine[i]);
          head[i + half] = static_cast<float>(b * cosine[i] + a * sine[i]);
        }
      }
    }
  }

  void store_kv(const KvLayer& cache, const float* k, const float* v, int64_t stride,
                const SequenceRows* sequences, int sequence_count) override {
    const KvAccess access(cache);
    for (int s = 0; s < sequence_count; ++s) {
      const SequenceRows& rows = sequences[s];
      for (int r = 0; r < rows.row_count; ++r) {
        const int position = rows.start + r;
        const int32_t block = rows.blocks[position / cache.block_tokens];
        const int slot = position % cache.block_tokens;
        const int64_t row = (rows.row_begin + r) * stride;
        for (int h = 0; h < cache.kv_heads; ++h) {
          for (int i = 0; i < cache.head_size; ++i) {
            const int64_t at = row + int64_t{h} * cache.head_size + i;
            access.set_key(block, h, slot, i, k[at]);
            access.set_value(block, h, slot, i, v[at]);
          }
        }
      }
    }
  }

  void attention(float* out, const float* q, int64_t stride, const KvLayer& cache,
                 const AttentionShape& shape, const SequenceRows* sequences,
                 int sequence_count) override {
    for (int s = 0; s < sequence_count; ++s) {
      const SequenceRows& rows = sequences[s];
      pool_.parallel_for(
          int64_t{rows.row_count} * shape.heads, 4, [&](int64_t begin, int64_t end, int) {
            for (int64_t item = begin; item < end; ++item) {
              attend(out, q, stride, cache, shape, rows, static_cast<int>(item / shape.heads),
                     static_cast<int>(item % shape.heads));
            }
          });
    }
  }

  void choose_experts(ExpertChoice* choices, const float* logits, int tokens, int experts,
                      int k) override {
    std::vector<int> order(experts);
    for (int t = 0; t < tokens; ++t) {
      const float* row = logits + int64_t{t} * experts;
      for (int e = 0; e < experts; ++e) order[e] = e;
      std::partial_sort(order.begin(), order.begin() + k, order.end(),
                        [&](int a, int b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
      double total = 0;
      for (int j = 0; j < k; ++j) total += std::exp(double{row[order[j]]} - row[order[0]]);
      for (int j = 0; j < k; ++j) {
        const double weight = std::exp(double{row[order[j]]} - row[order[0]]) / total;
        choices[int64_t{t} * k + j] = {order[j], static_cast<float>(weight)};
      }
    }
  }

  void experts(float* out, const float* x, const ExpertChoice* choices,
               const ExpertWeights& weights, const MoeShape& shape, int tokens) override {
    const Experts& down = weights.down;
    pool_.parallel_for(tokens, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(std::max(down.cols, weights.gate.cols)));
      std::vector<float> hidden(down.cols);
      std::vector<double> sum(down.rows);
      for (int64_t t = begin; t < end; ++t) {
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int j = 0; j < shape.experts_per_token; ++j) {
          const ExpertChoice choice = choices[t * shape.experts_per_token + j];
          const int e = choice.expert;
          const float* input = x + t * weights.gate.cols;
          for (int i = 0; i < down.cols; ++i) {
            const bool both = weights.interleaved();
            const double gate = dot_row(weights.gate, e, both ? 2 * i : i, input, row);
            const double up = both ? dot_row(weights.gate, e, 2 * i + 1, input, row)
                                   : dot_row(weights.up, e, i, input, row);
            hidden[i] = swiglu(gate, up, shape);
          }
          for (int i = 0; i < down.rows; ++i) {
            sum[i] += choice.weight * dot_row(down, e, i, hidden.data(), row);
          }
        }
        for (int i = 0; i < down.rows; ++i) {
          float& to = out[t * down.rows + i];
          to = static_cast<float>(to + sum[i]);
        }
      }
    });
  }

 private:
  static void attend(float* out, const float* q, int64_t stride, const KvLayer& cache,
                     const AttentionShape& shape, const SequenceRows& rows, int row, int head) {
    const KvAccess access(cache);
    const int position = rows.start + row;
    const int first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
    const int kv_head = head / (shape.heads / shape.kv_heads);
    const float* query = q + (rows.row_begin + row) * stride + int64_t{head} * shape.head_size;
    const double sink = shape.sinks[head];

    std::vector<double> scores(position - first + 1);
    double highest = sink;
    for (int p = first; p <= position; ++p) {
      const int32_t block = rows.blocks[p / cache.block_tokens];
      double sum = 0;
      for (int i = 0; i < shape.head_size; ++i) {
        sum += double{query[i]} * access.key(block, kv_head, p % cache.block_tokens, i);
      }
      scores[p - first] = sum * shape.scale;
      highest = std::max(highest, scores[p - first]);
    }
    double total = std::exp(sink - highest);
    std::vector<double> mix(shape.head_size, 0.0);
    for (int p = first; p <= position; ++p) {
      const double weight = std::exp(scores[p - first] - highest);
      const int32_t block = rows.blocks[p / cache.block_tokens];
      total += weight;
      for (int i = 0; i < shape.head_size; ++i) {
        mix[i] += weight * access.value(block, kv_head, p % cache.block_tokens, i);
      }
    }
    float* to = out + (int64_t{rows.row_begin} + row) * shape.heads * shape.head_size +
                int64_t{head} * shape.head_size;
    for (int i = 0; i < shape.head_size; ++i) to[i] = static_cast<float>(mix[i] / total);
  }

  static double dot(const std::vector<float>& weight, const float* x, double bias) {
    double sum = bias;
    for (size_t i = 0; i < weight.size(); ++i) sum += double{weight[i]} * x[i];
    return sum;
  }

  // Row `row` of an expert's matrix times x, plus its bias. `scratch` holds the row.
  static double dot_row(const Experts& experts, int expert, int row, const float* x,
                        std::vector<float>& scratch) {
    scratch.resize(static_cast<size_t>(experts.cols));
    read_weight_row(expert_matrix(experts, expert), row, scratch.data());
    return dot(scratch, x, experts.bias[int64_t{expert} * experts.rows + row]);
  }

  static float swiglu(double gate, double up, const MoeShape& shape) {
    const double limit = shape.swiglu_limit;
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
    return static_cast<float>(gate / (1.0 + std::exp(-shape.swiglu_alpha * gate)) * (up + 1.0));
  }

  base::ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Kernels> make_reference_kernels(base::ThreadPool& pool) {
  return std::make_unique<ReferenceKernels>(pool);
}

}  // namespace pelton::kernels
