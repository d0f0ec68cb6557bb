#include "kernels/bf16_kernels.h"

#include <vector>

#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

// To the nearest of 8 significant bits: 1.01 becomes 1.0078125, 1 + 1/128.
float rounded(float x) {
  return tensor::bf16_to_float(tensor::float_to_bf16(x));
}

void round_rows(float* x, int64_t stride, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) x[r * stride + c] = rounded(x[r * stride + c]);
  }
}

class Bf16Kernels final : public Kernels {
 public:
  Bf16Kernels(Kernels& inner, int vocab) : inner_(inner), vocab_(vocab) {}

  void reserve(const StepCapacity& shape) override {
    inner_.reserve(shape);
    room_.reserve(static_cast<size_t>(int64_t{shape.tokens} * shape.hidden));
  }
  int64_t scratch_bytes() const override {
    return inner_.scratch_bytes() + static_cast<int64_t>(room_.capacity() * sizeof(float));
  }
  std::string_view name() const override { return "bf16"; }
  tensor::DType kv_dtype() const override { return inner_.kv_dtype(); }

  void embed(float* out, const TokenId* tokens, int token_count, const Matrix& table) override {
    inner_.embed(out, tokens, token_count, table);
    round_rows(out, table.cols, token_count, table.cols);
  }

  void rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                float epsilon) override {
    inner_.rms_norm(out, x, weight, tokens, hidden, epsilon);
    round_rows(out, hidden, tokens, hidden);
  }

  void add_rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                    float epsilon) override {
    room_.resize(static_cast<size_t>(int64_t{tokens} * hidden));
    inner_.rms_norm(room_.data(), x, weight, tokens, hidden, epsilon);
    add_rounded(out, int64_t{tokens} * hidden);
  }

  void add_scaled(float* out, const float* x, float scale, int tokens, int hidden) override {
    const int64_t count = int64_t{tokens} * hidden;
    room_.assign(static_cast<size_t>(count), 0.0f);
    inner_.add_scaled(room_.data(), x, scale, tokens, hidden);
    add_rounded(out, count);
  }

  void layer_norm(float* out, const float* x, const float* weight, const float* bias, int tokens,
                  int hidden, float epsilon) override {
    inner_.layer_norm(out, x, weight, bias, tokens, hidden, epsilon);
    round_rows(out, hidden, tokens, hidden);
  }

  void rms_norm_heads(float* x, int64_t stride, const float* weight, int tokens, int heads,
                      int head_size, float epsilon) override {
    inner_.rms_norm_heads(x, stride, weight, tokens, heads, head_size, epsilon);
    round_rows(x, stride, tokens, int64_t{heads} * head_size);
  }

  void linear(float* out, const float* x, const Linear& linear, int tokens,
              Output output) override {
    const int64_t rows = linear.weight.rows;
    if (output == Output::kOverwrite) {
      inner_.linear(out, x, linear, tokens, output);
      if (rows != vocab_) round_rows(out, rows, tokens, rows);
      return;
    }
    room_.resize(static_cast<size_t>(tokens * rows));
    inner_.linear(room_.data(), x, linear, tokens, Output::kOverwrite);
    add_rounded(out, tokens * rows);
  }

  // The head's.
  void linear_marked(float* out, const float* x, const Matrix& matrix, const uint64_t* marks,
                     int tokens) override {
    inner_.linear_marked(out, x, matrix, marks, tokens);
  }

  void rotate(float* x, int64_t stride, const float* cos_sin, int tokens,
              const RotaryShape& shape) override {
    inner_.rotate(x, stride, cos_sin, tokens, shape);
    for (int h = 0; h < shape.heads; ++h) {
      round_rows(x + int64_t{h} * shape.head_stride, stride, tokens, shape.size);
    }
  }

  void store_kv(const KvLayer& cache, const float* k, const float* v, int64_t stride,
                const SequenceRows* sequences, int sequence_count) override {
    inner_.store_kv(cache, k, v, stride, sequences, sequence_count);
  }

  void attention(float* out, const float* q, int64_t stride, const KvLayer& cache,
                 const AttentionShape& shape, const SequenceRows* sequences,
                 int sequence_count) override {
    inner_.attention(out, q, stride, cache, shape, sequences, sequence_count);
    const SequenceRows& last = sequences[sequence_count - 1];
    const int64_t width = int64_t{shape.heads} * shape.head_size;
    round_rows(out, width, last.row_begin + last.row_count, width);
  }

  void linear_heads(float* out, const HeadStrides& out_strides, const float* x,
                    const HeadStrides& x_strides, const HeadMatrices& matrices,
                    int tokens) override {
    inner_.linear_heads(out, out_strides, x, x_strides, matrices, tokens);
    for (int h = 0; h < matrices.heads; ++h) {
      round_rows(out + h * out_strides.head, out_strides.token, tokens, matrices.rows);
    }
  }

  void linear_heads_transposed(float* out, const HeadStrides& out_strides, const float* x,
                               const HeadStrides& x_strides, const HeadMatrices& matrices,
                               int tokens) override {
    inner_.linear_heads_transposed(out, out_strides, x, x_strides, matrices, tokens);
    for (int h = 0; h < matrices.heads; ++h) {
      round_rows(out + h * out_strides.head, out_strides.token, tokens, matrices.weight.cols);
    }
  }

  void store_latent(const KvLayer& cache, const float* rows, int64_t stride,
                    const SequenceRows* sequences, int sequence_count) override {
    inner_.store_latent(cache, rows, stride, sequences, sequence_count);
  }

  void latent_attention(float* out, const float* q, const KvLayer& cache, const LatentShape& shape,
                        const SequenceRows* sequences, int sequence_count) override {
    inner_.latent_attention(out, q, cache, shape, sequences, sequence_count);
    const SequenceRows& last = sequences[sequence_count - 1];
    const int64_t width = int64_t{shape.heads} * shape.rank;
    round_rows(out, width, last.row_begin + last.row_count, width);
  }

  void activate(float* x, int64_t count, ActivationKind kind) override {
    inner_.activate(x, count, kind);
    round_rows(x, count, 1, count);
  }

  void glu(float* gate, const float* up, int64_t count, const GluShape& shape) override {
    inner_.glu(gate, up, count, shape);
    round_rows(gate, count, 1, count);
  }

  void route(ExpertChoice* choices, const float* logits, int tokens,
             const RouterShape& shape) override {
    inner_.route(choices, logits, tokens, shape);
    for (int64_t i = 0; i < int64_t{tokens} * shape.k; ++i) {
      choices[i].weight = rounded(choices[i].weight);
    }
  }

  void experts(float* out, const float* x, const ExpertChoice* choices,
               const ExpertWeights& weights, const MoeShape& shape, int tokens) override {
    const int64_t count = int64_t{tokens} * weights.down.rows;
    room_.assign(static_cast<size_t>(count), 0.0f);
    inner_.experts(room_.data(), x, choices, weights, shape, tokens);
    add_rounded(out, count);
  }

  // What is measured with this has no adapters.
  void add_low_rank(float* out, int64_t stride, const float* x, const AdaptedRows* groups,
                    int group_count) override {
    inner_.add_low_rank(out, stride, x, groups, group_count);
  }

 private:
  // The residual stream is kept in bf16, too.
  void add_rounded(float* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = rounded(out[i] + rounded(room_[i]));
  }

  Kernels& inner_;
  int vocab_;
  std::vector<float> room_;  // (tokens, hidden)
};

}  // namespace

std::unique_ptr<Kernels> make_bf16_kernels(Kernels& inner, int vocab) {
  return std::make_unique<Bf16Kernels>(inner, vocab);
}

}  // namespace pelton::kernels
