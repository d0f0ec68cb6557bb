#include "kernels/reference/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kv_quantization.h"
#include "kernels/weight_row.h"
#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

using tensor::bf16_to_float;
using tensor::DType;
using tensor::float_to_bf16;

// Reads and writes one head's key or value in a KV layer, whatever its type.
class KvAccess {
 public:
  explicit KvAccess(const KvLayer& layer)
      : layer_(layer), head_bytes_(tensor::kv_head_bytes(layer.dtype, layer.shape())) {}

  void write(int32_t block, int head, int slot, const float* k, const float* v) const {
    write(at(block, head, slot, Part::kKey), k);
    write(at(block, head, slot, Part::kValue), v);
  }
  void read_key(int32_t block, int head, int slot, double* out) const {
    read(at(block, head, slot, Part::kKey), out);
  }
  void read_value(int32_t block, int head, int slot, double* out) const {
    read(at(block, head, slot, Part::kValue), out);
  }

 private:
  enum class Part { kKey, kValue };

  // Where element i lies: first + i * stride, in elements.
  struct Place {
    char* head;
    int64_t first;
    int64_t stride;
    uint16_t* scale;  // one-byte types
  };

  Place at(int32_t block, int head, int slot, Part part) const {
    const int64_t keys = int64_t{layer_.head_size} * layer_.block_tokens;
    char* data =
        static_cast<char*>(layer_.data) + (int64_t{block} * layer_.kv_heads + head) * head_bytes_;
    auto* scales = reinterpret_cast<uint16_t*>(
        data + 2 * keys * static_cast<int64_t>(tensor::dtype_bytes(layer_.dtype)));
    if (part == Part::kKey) return {data, slot, layer_.block_tokens, scales + slot};
    return {data, keys + int64_t{slot} * layer_.head_size, 1, scales + layer_.block_tokens + slot};
  }

  void write(const Place& place, const float* x) const {
    std::vector<float> rotated(x, x + layer_.head_size);
    float scale = 1;
    if (tensor::kv_has_scales(layer_.dtype)) {
      if (kv_is_rotated(layer_.dtype)) hadamard_transform(rotated.data(), layer_.head_size);
      *place.scale = kv_scale(rotated.data(), layer_.head_size, layer_.dtype);
      scale = bf16_to_float(*place.scale);
    }
    for (int i = 0; i < layer_.head_size; ++i) {
      const int64_t to = place.first + i * place.stride;
      switch (layer_.dtype) {
        case DType::kF32:
          reinterpret_cast<float*>(place.head)[to] = x[i];
          break;
        case DType::kF16:
          reinterpret_cast<uint16_t*>(place.head)[to] = tensor::float_to_f16(x[i]);
          break;
        case DType::kBf16:
          reinterpret_cast<uint16_t*>(place.head)[to] = float_to_bf16(x[i]);
          break;
        default:
          reinterpret_cast<uint8_t*>(place.head)[to] = quantize_kv(rotated[i], scale, layer_.dtype);
      }
    }
  }

  void read(const Place& place, double* out) const {
    for (int i = 0; i < layer_.head_size; ++i)
      out[i] = element(place, place.first + i * place.stride);
    if (kv_is_rotated(layer_.dtype)) turn_back(out);
  }

  double element(const Place& place, int64_t from) const {
    switch (layer_.dtype) {
      case DType::kF32:
        return reinterpret_cast<const float*>(place.head)[from];
      case DType::kF16:
        return tensor::f16_to_float(reinterpret_cast<const uint16_t*>(place.head)[from]);
      case DType::kBf16:
        return bf16_to_float(reinterpret_cast<const uint16_t*>(place.head)[from]);
      default:
        return dequantize_kv(reinterpret_cast<const uint8_t*>(place.head)[from],
                             bf16_to_float(*place.scale), layer_.dtype);
    }
  }

  // The transform is its own inverse, but for its size.
  void turn_back(double* x) const {
    const int size = hadamard_size(layer_.head_size);
    for (int step = 1; step < size; step *= 2) {
      for (int i = 0; i < layer_.head_size; ++i) {
        if ((i & step) != 0) continue;
        const double a = x[i];
        const double b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
    for (int i = 0; i < layer_.head_size; ++i) x[i] /= size;
  }

  const KvLayer& layer_;
  const int64_t head_bytes_;
};

class ReferenceKernels final : public Kernels {
 public:
  explicit ReferenceKernels(base::ThreadPool& pool) : pool_(pool) {}

  std::string_view name() const override { return "reference"; }
  DType kv_dtype() const override { return DType::kF32; }

  // Plain loops with a few rows of their own.
  void reserve(const StepCapacity&) override {}
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

  void rms_norm_heads(float* x, int64_t stride, const float* weight, int tokens, int heads,
                      int head_size, float epsilon) override {
    for (int t = 0; t < tokens; ++t) {
      float* row = x + t * stride;
      for (int h = 0; h < heads; ++h) {
        float* head = row + int64_t{h} * head_size;
        rms_norm(head, head, weight, 1, head_size, epsilon);
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

  void linear_marked(float* out, const float* x, const Matrix& matrix, const uint64_t* marks,
                     int tokens) override {
    const StoredMatrix stored{matrix.data, nullptr, matrix.rows, matrix.cols, matrix.format};
    const int64_t words = mark_words(matrix.rows);
    pool_.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
      std::vector<float> weight(static_cast<size_t>(matrix.cols));
      for (int64_t row = begin; row < end; ++row) {
        for (int t = 0; t < tokens; ++t) {
          if ((marks[t * words + row / 64] >> (row % 64) & 1) == 0) continue;
          read_weight_row(stored, row, weight.data());
          out[t * int64_t{matrix.rows} + row] =
              static_cast<float>(dot(weight, x + int64_t{t} * matrix.cols, 0.0));
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
          const int64_t from = row + int64_t{h} * cache.head_size;
          access.write(block, h, slot, k + from, v + from);
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

  void glu(float* gate, const float* up, int64_t count, const GluShape& shape) override {
    for (int64_t i = 0; i < count; ++i) gate[i] = glu_of(gate[i], up[i], shape);
  }

  void route_top_k(ExpertChoice* choices, const float* logits, int tokens, int experts,
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
            const double gate =
                dot_row(weights.gate, e, both ? weights.gate_row(i) : i, input, row);
            const double up = both ? dot_row(weights.gate, e, weights.up_row(i), input, row)
                                   : dot_row(weights.up, e, i, input, row);
            hidden[i] = glu_of(gate, up, shape.glu);
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

    std::vector<double> scores(position - first + 1);
    std::vector<double> cached(shape.head_size);
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const double sink = shape.sinks != nullptr ? shape.sinks[head] : kNone;
    double highest = sink;
    for (int p = first; p <= position; ++p) {
      const int32_t block = rows.blocks[p / cache.block_tokens];
      access.read_key(block, kv_head, p % cache.block_tokens, cached.data());
      double sum = 0;
      for (int i = 0; i < shape.head_size; ++i) sum += double{query[i]} * cached[i];
      scores[p - first] = sum * shape.scale;
      highest = std::max(highest, scores[p - first]);
    }
    double total = std::exp(sink - highest);
    std::vector<double> mix(shape.head_size, 0.0);
    for (int p = first; p <= position; ++p) {
      const double weight = std::exp(scores[p - first] - highest);
      const int32_t block = rows.blocks[p / cache.block_tokens];
      total += weight;
      access.read_value(block, kv_head, p % cache.block_tokens, cached.data());
      for (int i = 0; i < shape.head_size; ++i) mix[i] += weight * cached[i];
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

  static float glu_of(double gate, double up, const GluShape& shape) {
    if (shape.kind == GluShape::Kind::kSwiglu) {
      return static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
    const double limit = shape.limit;
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
    return static_cast<float>(gate / (1.0 + std::exp(-shape.alpha * gate)) * (up + 1.0));
  }

  base::ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Kernels> make_reference_kernels(base::ThreadPool& pool) {
  return std::make_unique<ReferenceKernels>(pool);
}

}  // namespace pelton::kernels
