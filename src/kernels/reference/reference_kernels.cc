#include "kernels/reference/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/kv_quantization.h"
#include "kernels/latent_rows.h"
#include "kernels/routing.h"
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
    const StoredMatrix matrix = stored(table);
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

  void add_rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                    float epsilon) override {
    std::vector<float> normed(static_cast<size_t>(hidden));
    for (int64_t t = 0; t < tokens; ++t) {
      rms_norm(normed.data(), x + t * hidden, weight, 1, hidden, epsilon);
      for (int i = 0; i < hidden; ++i) out[t * hidden + i] += normed[i];
    }
  }

  void add_scaled(float* out, const float* x, float scale, int tokens, int hidden) override {
    for (int64_t i = 0; i < int64_t{tokens} * hidden; ++i) out[i] += scale * x[i];
  }

  void layer_norm(float* out, const float* x, const float* weight, const float* bias, int tokens,
                  int hidden, float epsilon) override {
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = x + t * hidden;
      double mean = 0;
      for (int i = 0; i < hidden; ++i) mean += row[i];
      mean /= hidden;
      double squares = 0;
      for (int i = 0; i < hidden; ++i) squares += (row[i] - mean) * (row[i] - mean);
      const double scale = 1.0 / std::sqrt(squares / hidden + epsilon);
      for (int i = 0; i < hidden; ++i) {
        out[t * hidden + i] = static_cast<float>((row[i] - mean) * scale * weight[i] + bias[i]);
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
    const StoredMatrix weights = stored(matrix);
    std::vector<float> sorted;
    if (matrix.input_order != nullptr) {
      sorted.resize(static_cast<size_t>(int64_t{tokens} * matrix.cols));
      reorder_inputs(sorted.data(), x, matrix, 0, tokens);
      x = sorted.data();
    }
    pool_.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
      std::vector<float> weight(static_cast<size_t>(matrix.cols));
      for (int64_t row = begin; row < end; ++row) {
        read_weight_row(weights, row, weight.data());
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
    const StoredMatrix weights = stored(matrix);
    const int64_t words = mark_words(matrix.rows);
    pool_.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
      std::vector<float> weight(static_cast<size_t>(matrix.cols));
      for (int64_t row = begin; row < end; ++row) {
        for (int t = 0; t < tokens; ++t) {
          if ((marks[t * words + row / 64] >> (row % 64) & 1) == 0) continue;
          read_weight_row(weights, row, weight.data());
          out[t * int64_t{matrix.rows} + row] =
              static_cast<float>(dot(weight, x + int64_t{t} * matrix.cols, 0.0));
        }
      }
    });
  }

  void rotate(float* x, int64_t stride, const float* cos_sin, int tokens,
              const RotaryShape& shape) override {
    const int half = shape.size / 2;
    const bool neighbours = shape.pairs == RotaryShape::Pairs::kNeighbours;
    for (int t = 0; t < tokens; ++t) {
      const float* cosine = cos_sin + int64_t{t} * shape.size;
      const float* sine = cosine + half;
      for (int h = 0; h < shape.heads; ++h) {
        float* head = x + t * stride + int64_t{h} * shape.head_stride;
        for (int i = 0; i < half; ++i) {
          float& low = head[neighbours ? 2 * i : i];
          float& high = head[neighbours ? 2 * i + 1 : i + half];
          const double a = low;
          const double b = high;
          low = static_cast<float>(a * cosine[i] - b * sine[i]);
          high = static_cast<float>(b * cosine[i] + a * sine[i]);
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

  void linear_heads(float* out, const HeadStrides& out_strides, const float* x,
                    const HeadStrides& x_strides, const HeadMatrices& matrices,
                    int tokens) override {
    const StoredMatrix weights = stored(matrices.weight);
    const int64_t cols = weights.cols;
    pool_.parallel_for(matrices.heads, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> weight(static_cast<size_t>(cols));
      for (int64_t h = begin; h < end; ++h) {
        for (int r = 0; r < matrices.rows; ++r) {
          read_weight_row(weights, matrices.first + h * matrices.stride + r, weight.data());
          for (int64_t t = 0; t < tokens; ++t) {
            const float* const from = x + t * x_strides.token + h * x_strides.head;
            out[t * out_strides.token + h * out_strides.head + r] =
                static_cast<float>(dot(weight, from, 0.0));
          }
        }
      }
    });
  }

  void linear_heads_transposed(float* out, const HeadStrides& out_strides, const float* x,
                               const HeadStrides& x_strides, const HeadMatrices& matrices,
                               int tokens) override {
    const StoredMatrix weights = stored(matrices.weight);
    const int64_t cols = weights.cols;
    pool_.parallel_for(matrices.heads, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> weight(static_cast<size_t>(cols));
      std::vector<double> sums(static_cast<size_t>(tokens * cols));
      for (int64_t h = begin; h < end; ++h) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int r = 0; r < matrices.rows; ++r) {
          read_weight_row(weights, matrices.first + h * matrices.stride + r, weight.data());
          for (int64_t t = 0; t < tokens; ++t) {
            const double factor = x[t * x_strides.token + h * x_strides.head + r];
            for (int64_t c = 0; c < cols; ++c) sums[t * cols + c] += factor * weight[c];
          }
        }
        for (int64_t i = 0; i < tokens * cols; ++i) {
          out[i / cols * out_strides.token + h * out_strides.head + i % cols] =
              static_cast<float>(sums[i]);
        }
      }
    });
  }

  void store_latent(const KvLayer& cache, const float* rows, int64_t stride,
                    const SequenceRows* sequences, int sequence_count) override {
    for (int s = 0; s < sequence_count; ++s) {
      const SequenceRows& of = sequences[s];
      for (int r = 0; r < of.row_count; ++r) {
        const int position = of.start + r;
        write_latent_row(cache, of.blocks[position / cache.block_tokens],
                         position % cache.block_tokens, rows + (of.row_begin + r) * stride);
      }
    }
  }

  void latent_attention(float* out, const float* q, const KvLayer& cache, const LatentShape& shape,
                        const SequenceRows* sequences, int sequence_count) override {
    for (int s = 0; s < sequence_count; ++s) {
      const SequenceRows& rows = sequences[s];
      pool_.parallel_for(
          int64_t{rows.row_count} * shape.heads, 4, [&](int64_t begin, int64_t end, int) {
            for (int64_t item = begin; item < end; ++item) {
              attend_latent(out, q, cache, shape, rows, static_cast<int>(item / shape.heads),
                            static_cast<int>(item % shape.heads));
            }
          });
    }
  }

  void glu(float* gate, const float* up, int64_t count, const GluShape& shape) override {
    for (int64_t i = 0; i < count; ++i) gate[i] = glu_of(gate[i], up[i], shape);
  }

  void activate(float* x, int64_t count, ActivationKind kind) override {
    for (int64_t i = 0; i < count; ++i) x[i] = activation_of(x[i], kind);
  }

  void route(ExpertChoice* choices, const float* logits, int tokens,
             const RouterShape& shape) override {
    for (int64_t t = 0; t < tokens; ++t) {
      ExpertChoice* const of_token = choices + t * shape.k;
      const float* const row = logits + t * shape.experts;
      if (shape.kind == RouterShape::Kind::kSoftmaxOfTopK) {
        softmax_of_top_k(of_token, row, shape);
      } else {
        route_token(of_token, row, shape);
      }
    }
  }

  void experts(float* out, const float* x, const ExpertChoice* choices,
               const ExpertWeights& weights, const MoeShape& shape, int tokens) override {
    const Experts& down = weights.down;
    pool_.parallel_for(tokens, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<double> sum(down.rows);
      for (int64_t t = begin; t < end; ++t) {
        std::fill(sum.begin(), sum.end(), 0.0);
        const ExpertLowRank* const adapter =
            shape.adapters != nullptr ? shape.adapters[t] : nullptr;
        for (int j = 0; j < shape.experts_per_token; ++j) {
          const ExpertChoice choice = choices[t * shape.experts_per_token + j];
          add_expert(sum, x + t * weights.gate.cols, choice, weights, shape.glu, adapter);
        }
        for (int i = 0; i < down.rows; ++i) {
          float& to = out[t * down.rows + i];
          to = static_cast<float>(to + sum[i]);
        }
      }
    });
  }

  void add_low_rank(float* out, int64_t stride, const float* x, const AdaptedRows* groups,
                    int group_count) override {
    for (int g = 0; g < group_count; ++g) {
      const AdaptedRows& group = groups[g];
      const LowRank& adapter = *group.adapter;
      pool_.parallel_for(group.count, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t t = group.rows[i];
          const std::vector<double> added = low_rank(adapter, x + t * adapter.cols);
          for (int r = 0; r < adapter.rows; ++r) {
            float& to = out[t * stride + r];
            to = static_cast<float>(to + added[r]);
          }
        }
      });
    }
  }

 private:
  // scale * B (A x), all in doubles; empty without a rank.
  static std::vector<double> low_rank(const LowRank& adapter, const float* x) {
    if (!adapter.adds()) return {};
    const auto matrix = [&](const void* data, int cols) {
      return stored({.data = data, .rows = adapter.rank, .cols = cols, .format = adapter.format});
    };
    const StoredMatrix a = matrix(adapter.a, adapter.cols);
    const StoredMatrix b = matrix(adapter.b, adapter.rows);
    std::vector<float> row(static_cast<size_t>(adapter.cols));
    std::vector<float> column(static_cast<size_t>(adapter.rows));
    std::vector<double> added(static_cast<size_t>(adapter.rows), 0.0);
    for (int rho = 0; rho < adapter.rank; ++rho) {
      read_weight_row(a, rho, row.data());
      read_weight_row(b, rho, column.data());
      const double factor = adapter.scale * dot(row, x, 0.0);
      for (int i = 0; i < adapter.rows; ++i) added[i] += factor * column[i];
    }
    return added;
  }

  // sum += weight * down glu(gate x, up x), of one expert.
  static void add_expert(std::vector<double>& sum, const float* x, const ExpertChoice& choice,
                         const ExpertWeights& weights, const GluShape& glu,
                         const ExpertLowRank* adapter) {
    const Experts& down = weights.down;
    const int e = choice.expert;
    const bool both = weights.interleaved();
    std::vector<float> row;
    std::vector<float> hidden(static_cast<size_t>(down.cols));
    const auto added_by = [&](const LowRank& part, const float* input) {
      return adapter == nullptr ? std::vector<double>() : low_rank(part.of_expert(e), input);
    };
    const ExpertLowRank none;
    const ExpertLowRank& parts = adapter != nullptr ? *adapter : none;
    const std::vector<double> gates = added_by(parts.gate, x);
    const std::vector<double> ups = added_by(parts.up, x);
    for (int i = 0; i < down.cols; ++i) {
      double gate = dot_row(weights.gate, e, both ? weights.gate_row(i) : i, x, row);
      double up = both ? dot_row(weights.gate, e, weights.up_row(i), x, row)
                       : dot_row(weights.up, e, i, x, row);
      if (!gates.empty()) gate += gates[i];
      if (!ups.empty()) up += ups[i];
      hidden[i] = glu_of(gate, up, glu);
    }
    const std::vector<double> downs = added_by(parts.down, hidden.data());
    for (int i = 0; i < down.rows; ++i) {
      double product = dot_row(down, e, i, hidden.data(), row);
      if (!downs.empty()) product += downs[i];
      sum[i] += choice.weight * product;
    }
  }

  static void softmax_of_top_k(ExpertChoice* choices, const float* row, const RouterShape& shape) {
    std::vector<int> order(static_cast<size_t>(shape.experts));
    for (int e = 0; e < shape.experts; ++e) order[e] = e;
    std::partial_sort(order.begin(), order.begin() + shape.k, order.end(),
                      [&](int a, int b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    double total = 0;
    for (int j = 0; j < shape.k; ++j) total += std::exp(double{row[order[j]]} - row[order[0]]);
    for (int j = 0; j < shape.k; ++j) {
      const double weight = std::exp(double{row[order[j]]} - row[order[0]]) / total;
      choices[j] = {order[j], static_cast<float>(weight)};
    }
  }

  static void attend(float* out, const float* q, int64_t stride, const KvLayer& cache,
                     const AttentionShape& shape, const SequenceRows& rows, int row, int head) {
    const KvAccess access(cache);
    const int position = rows.key_count > 0 ? rows.key_count - 1 : rows.start + row;
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
      sum *= shape.scale;
      if (shape.softcap > 0) sum = shape.softcap * std::tanh(sum / shape.softcap);
      scores[p - first] = sum;
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

  static void attend_latent(float* out, const float* q, const KvLayer& cache,
                            const LatentShape& shape, const SequenceRows& rows, int row, int head) {
    const int position = rows.start + row;
    const int64_t vector = (int64_t{rows.row_begin} + row) * shape.heads + head;
    const float* query = q + vector * shape.width();
    std::vector<float> cached(static_cast<size_t>(shape.width()));
    const auto read = [&](int p) {
      read_latent_row(cache, rows.blocks[p / cache.block_tokens], p % cache.block_tokens,
                      cached.data());
    };
    std::vector<double> scores;
    for (int p = 0; p <= position; ++p) {
      read(p);
      scores.push_back(dot(cached, query, 0.0) * shape.scale);
    }
    const double highest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    std::vector<double> mix(static_cast<size_t>(shape.rank), 0.0);
    for (int p = 0; p <= position; ++p) {
      const double weight = std::exp(scores[p] - highest);
      total += weight;
      read(p);
      for (int i = 0; i < shape.rank; ++i) mix[i] += weight * cached[i];
    }
    float* to = out + vector * shape.rank;
    for (int i = 0; i < shape.rank; ++i) to[i] = static_cast<float>(mix[i] / total);
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
    const double bias =
        experts.bias != nullptr ? experts.bias[int64_t{expert} * experts.rows + row] : 0.0f;
    return dot(scratch, x, bias);
  }

  static float glu_of(double gate, double up, const GluShape& shape) {
    if (shape.kind == GluShape::Kind::kSwiglu) {
      return static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
    if (shape.kind == GluShape::Kind::kGegluTanh) {
      const double inner =
          std::sqrt(2.0 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      return static_cast<float>(0.5 * gate * (1.0 + std::tanh(inner)) * up);
    }
    const double limit = shape.limit;
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
    return static_cast<float>(gate / (1.0 + std::exp(-shape.alpha * gate)) * (up + 1.0));
  }

  static float activation_of(double x, ActivationKind kind) {
    switch (kind) {
      case ActivationKind::kGelu:
        // By erfc, which keeps what 1 + erf loses below zero.
        return static_cast<float>(0.5 * x * std::erfc(-x / std::numbers::sqrt2));
      case ActivationKind::kGeluTanh:
        return static_cast<float>(
            0.5 * x *
            (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x))));
      case ActivationKind::kRelu:
        break;
    }
    return static_cast<float>(std::max(x, 0.0));
  }

  base::ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Kernels> make_reference_kernels(base::ThreadPool& pool) {
  return std::make_unique<ReferenceKernels>(pool);
}

}  // namespace pelton::kernels
