// The arithmetic of a transformer step on the host, as a seam with several real implementations:
// reference (plain float32 with double sums, the measure of the others), and the fast ones of
// kernels/cpu (AVX-512, AVX2). Chosen once at start.
//
// Every implementation is batch-invariant: a row's result does not depend on how many rows there
// are, how they are cut into steps, or how many threads share the work. Activations are float32;
// only tiled weights meet them as integers (Activations). Called by one thread (the executor's),
// which the pool's workers help. Shapes are CHECKed by callers in layers/; weights point into the
// mapped checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "base/token_id.h"
#include "tensor/dtype.h"
#include "tensor/kv_block.h"

namespace pelton::kernels {

using Bf16 = uint16_t;  // the upper half of a float32
struct F16 {            // IEEE binary16
  uint16_t bits;
};
struct F8 {  // E4M3
  uint8_t bits;
};

// How the elements of a weight matrix (rows, cols) lie in the file. Rows lie one after the other,
// but for kBf16Columns. Blocks hold 32 elements along a row (tensor/dtype.h).
enum class Format : uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ8_0,         // GGUF blocks of 34 bytes
  kMxfp4Blocks,  // GGUF blocks of 17 bytes: the scale in front, elements j and j+16 in byte j
  kMxfp4Pairs,   // Hugging Face: 16 bytes a block, elements 2b and 2b+1 in byte b; scales apart
  kBf16Columns,  // transposed: (cols, rows)
  kInt8Tiles,    // tiles of 16 rows (kernels/tiles.h): bytes with a float16 scale each 32
  kMxfp4Tiles,   // the same for MXFP4
  kInt4Tiles,    // the same for 4-bit integers with a float16 scale each 32
  // GGUF's other blocks, in the order of tensor::DType.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIq4Nl,
  kIq4Xs,
  kF8Blocks,     // E4M3; a float32 for each block of them lies apart (BlockScales)
  kCompactBf16,  // bf16 in 12 bits (tensor/compact_bf16.h)
};

// The scales of a kF8Blocks matrix: float (rows / `rows`, cols / `cols`), both rounded up.
struct BlockScales {
  const float* data = nullptr;
  int rows = 128;  // that share a scale
  int cols = 128;  // likewise: a power of two from 32 on, or all of a row

  int64_t per_row(int64_t columns) const { return (columns + cols - 1) / cols; }
};

constexpr bool is_ggml_blocks(Format format) {
  return format >= Format::kQ4_0 && format <= Format::kIq4Xs;
}
constexpr tensor::DType ggml_dtype(Format format) {
  return static_cast<tensor::DType>(static_cast<int>(format) - static_cast<int>(Format::kQ4_0) +
                                    static_cast<int>(tensor::DType::kQ4_0));
}
constexpr Format ggml_format(tensor::DType dtype) {
  return static_cast<Format>(static_cast<int>(dtype) - static_cast<int>(tensor::DType::kQ4_0) +
                             static_cast<int>(Format::kQ4_0));
}

// What a tiled matrix is multiplied with: 32 activations share a scale and become integers of 8 or
// 15 bits (kernels/cpu/tile_kernels.h). All other formats meet float32.
enum class Activations : uint8_t { kInt8, kInt16 };

// Bytes of one row, scales included.
int64_t row_bytes(Format format, int64_t cols);

// kF32, kF16, kBf16, kCompactBf16, GGUF's blocks but for MXFP4, kF8Blocks, kInt8Tiles or
// kInt4Tiles.
struct Matrix {
  const void* data = nullptr;
  int rows = 0;
  int cols = 0;
  Format format = Format::kBf16;
  Activations activations = Activations::kInt16;  // of a tiled matrix
  BlockScales block_scales{};                     // of kF8Blocks
  // Of a weight of `linear` whose columns were sorted: element i of a row is multiplied with input
  // input_order[i]; (cols). Null: with input i.
  const int32_t* input_order = nullptr;
};

// bias: float (rows) or null.
struct Linear {
  Matrix weight;
  const float* bias = nullptr;
};

// Where one expert's matrix lies, and its scales: of kF8Blocks, or E8M0 (rows, cols/32) of
// kMxfp4Pairs.
struct ExpertMatrix {
  const void* data = nullptr;
  BlockScales block_scales{};
  const uint8_t* scales = nullptr;
};

// One matrix for each expert, in any format: either in one piece at `data`, where `expert_rows`
// rows lie between the first rows of two experts, or each by itself: (experts) of `apart`.
// scales: E8M0 (experts, rows, cols/32) of kMxfp4Pairs; bias: float (experts, rows), or null.
struct Experts {
  const void* data = nullptr;
  const uint8_t* scales = nullptr;
  const float* bias = nullptr;
  int experts = 0;
  int rows = 0;
  int cols = 0;
  Format format = Format::kMxfp4Pairs;
  int expert_rows = 0;
  Activations activations = Activations::kInt16;  // if tiled
  const ExpertMatrix* apart = nullptr;
};

// gate (experts, inner, hidden), up likewise, down (experts, hidden, inner). If up has no rows,
// gate holds both: (experts, 2 * inner, hidden), rows 2i gate and 2i+1 up; tiled, 16 rows of gate
// and the same 16 of up take turns (biases as well). up has gate's format.
struct ExpertWeights {
  Experts gate;
  Experts up;
  Experts down;

  bool interleaved() const { return up.rows == 0; }

  // Where the i-th gate and up stand among the rows of `gate`, if it holds both.
  int gate_row(int i) const { return i / run() * 2 * run() + i % run(); }
  int up_row(int i) const { return gate_row(i) + run(); }

 private:
  int run() const {
    const bool tiled = gate.format == Format::kMxfp4Tiles || gate.format == Format::kInt8Tiles;
    return tiled ? tensor::kTileRows : 1;
  }
};

// Keys and values of one layer in one block group: blocks one after the other, each in one piece,
// as tensor/kv_block.h lays them out. One-byte types are coded as kernels/kv_quantization.h says;
// every implementation writes the same bytes.
struct KvLayer {
  void* data = nullptr;
  tensor::DType dtype = tensor::DType::kF16;  // kF32, kF16, kBf16, kF8E4m3 or kI8
  int block_tokens = 16;
  int kv_heads = 0;
  int head_size = 0;
  bool latent = false;  // one row of head_size for each token

  tensor::KvBlockShape shape() const { return {kv_heads, head_size, block_tokens, latent}; }
  int64_t block_bytes() const { return tensor::kv_block_bytes(dtype, shape()); }
};

// The rows of one sequence in this step: row_begin.. are positions start.. The rows of a step's
// sequences lie one after the other.
struct SequenceRows {
  int row_begin = 0;
  int row_count = 0;
  int start = 0;
  const int32_t* blocks = nullptr;  // this layer group's table, by position / block_tokens
  // Where it is not 0, attention is not causal: every row sees this many keys, from position 0 on.
  int key_count = 0;
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  int window = 0;                // a query at p sees keys max(0, p-window+1)..p; 0: all up to p
  const float* sinks = nullptr;  // (heads) or null: an extra logit in the softmax, without a value
  float scale = 1.0f;
  float softcap = 0.0f;  // c: c tanh(s / c) of each scaled score s; 0: none
};

// The rotated dimensions of each head (rotary_dim), and which two of them make a pair.
struct RotaryShape {
  enum class Pairs : uint8_t {
    kHalves,      // i and i + size / 2
    kNeighbours,  // 2i and 2i + 1
  };
  int heads = 0;
  int head_stride = 0;  // elements from one head to the next
  int size = 0;         // rotary_dim: the first of a head
  Pairs pairs = Pairs::kHalves;
};

// Of latent attention (arXiv 2405.04434) in its absorbed form: one row of each token is the key of
// all heads, and its first `rank` elements are the value.
struct LatentShape {
  int heads = 0;
  int rank = 0;
  int rope_size = 0;
  float scale = 1.0f;

  int width() const { return rank + rope_size; }
};

// One matrix W_h for each head: rows first + h * stride + [0, rows) of `weight`, of any format but
// tiles.
struct HeadMatrices {
  Matrix weight;
  int heads = 0;
  int first = 0;
  int rows = 0;
  int stride = 0;
};

// Elements from one token's to the next one's, and from one head's to the next one's.
struct HeadStrides {
  int64_t token = 0;
  int64_t head = 0;
};

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0.0f;
};

// How a token's router logits become experts and their weights.
struct RouterShape {
  enum class Kind : uint8_t {
    kSoftmaxOfTopK,  // the k largest logits; softmax over those
    kSoftmax,        // the k largest; softmax over all
    kSigmoid,        // scores sigmoid(logit)
  };
  Kind kind = Kind::kSoftmaxOfTopK;
  int experts = 0;
  int k = 0;
  // Of kSoftmax and kSigmoid. The choice is by score + correction, among the experts of the best
  // `groups_kept` of `groups` equal groups, by their best or by the sum of their two best; weights
  // are scores, divided by their sum if `normalises`, times `scale`.
  const float* correction = nullptr;  // (experts) or null
  int groups = 1;
  int groups_kept = 1;
  bool group_by_two = false;
  bool normalises = false;
  float scale = 1.0f;
};

// The gated linear unit between the two products of an MLP or an expert (arXiv 2002.05202).
struct GluShape {
  enum class Kind : uint8_t {
    kSwiglu,         // silu(gate) * up
    kClampedSwiglu,  // g sigmoid(alpha g) (u + 1), g = min(gate, limit), u = up clamped to +-limit
    kGegluTanh,      // gelu(gate) * up; gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  };
  Kind kind = Kind::kClampedSwiglu;
  float alpha = 1.702f;
  float limit = 7.0f;
};

// What a LoRA adapter adds to a matrix (rows, cols): out += scale * B (A x). a: (rank, cols); b:
// (rank, rows), B transposed; both of `format`: kF32, kF16 or kBf16. Of experts a and b hold as
// much for each, one expert behind the other.
struct LowRank {
  const void* a = nullptr;
  const void* b = nullptr;
  Format format = Format::kBf16;
  int rank = 0;  // 0: nothing is added
  int rows = 0;
  int cols = 0;
  float scale = 1.0f;

  bool adds() const { return rank > 0; }
  LowRank of_expert(int expert) const {
    const int64_t element = format == Format::kF32 ? 4 : 2;
    LowRank one = *this;
    one.a = static_cast<const char*>(a) + element * expert * rank * cols;
    one.b = static_cast<const char*>(b) + element * expert * rank * rows;
    return one;
  }
};

// Of the three products of experts; gate and up may share their a, of one matrix for both.
struct ExpertLowRank {
  LowRank gate;
  LowRank up;
  LowRank down;

  bool adds() const { return gate.adds() || up.adds() || down.adds(); }
};

// Rows of a step that the same adapter adds to, rising.
struct AdaptedRows {
  const LowRank* adapter = nullptr;
  const int32_t* rows = nullptr;
  int count = 0;
};

// Between the two products of an MLP without gate.
enum class ActivationKind : uint8_t {
  kGelu,      // x/2 (1 + erf(x / sqrt 2))
  kGeluTanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kRelu,      // max(x, 0)
};

// Columns of (rows, width) arrays that several ranks compute together: of each row, this rank has
// written its own units, and gather brings the others'. A unit is what cannot be cut: 32 columns.
class ColumnExchange {
 public:
  struct Array {
    void* data = nullptr;    // (rows, units of all ranks)
    int64_t unit_bytes = 0;  // of one unit of a row
  };

  virtual ~ColumnExchange() = default;

  virtual int first() const = 0;  // this rank's first unit
  virtual int count() const = 0;  // and how many it has; may be none
  // All arrays at once. Where another rank is lost their content is anything.
  virtual void gather(const Array* arrays, int array_count, int64_t rows) = 0;
};

// Experts that several ranks have dealt out among them, each whole: of an array with a row for each
// choice, each rank has written those that it computes, and gather brings the others'.
class RowExchange {
 public:
  virtual ~RowExchange() = default;

  // (count): which of this rank's weights computes a choice; -1: another rank does. Good until the
  // next call. choices: (count), of one step.
  virtual const int32_t* places(const ExpertChoice* choices, int64_t count) = 0;
  // rows: float (count, width), of the choices that were there last. Where another rank is lost
  // their content is anything.
  virtual void gather(float* rows, int width, int64_t count) = 0;
};

struct MoeShape {
  int experts_per_token = 0;
  GluShape glu;
  // Null: this process computes all of it. Otherwise gate and up hold the rows of this rank's units
  // of 32 activations alone, which are brought together ahead of down.
  ColumnExchange* exchange = nullptr;
  // Null: `weights` are of all experts. Otherwise of this rank's alone, and what each expert gives
  // for a token is brought together ahead of their sum.
  RowExchange* dealt = nullptr;
  // (tokens): what adds to the three products of a row, null where nothing does; or null.
  const ExpertLowRank* const* adapters = nullptr;
};

// The largest step to come, for whoever keeps working memory.
struct StepCapacity {
  int tokens = 0;
  int hidden = 0;
  int inner = 0;  // of an expert
  int experts = 0;
  int experts_per_token = 0;
  int widest = 0;          // the most columns that a matrix has
  bool reordered = false;  // some matrices have an input_order
  bool tiled = false;      // the experts' weights, and other matrices perhaps
  // Of adapters: the highest rank, 0 without any; and whether they add to experts.
  int adapter_rank = 0;
  bool expert_adapters = false;
  Activations activations = Activations::kInt16;
};

// Of a bit for each row of a matrix.
constexpr int64_t mark_words(int64_t rows) {
  return (rows + 63) / 64;
}

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Allocates working memory for steps of up to `shape`, exactly; a larger step would grow it. What
  // a kernel keeps from call to call belongs in here: cost_model/footprint.h estimates it to the
  // byte.
  virtual void reserve(const StepCapacity& shape) = 0;
  virtual int64_t scratch_bytes() const = 0;  // kept from call to call

  virtual std::string_view name() const = 0;   // "reference", "avx512+amx", "avx2"
  virtual tensor::DType kv_dtype() const = 0;  // what it keeps keys and values in by default

  // out: float (tokens, hidden) = table[token]; table: (vocab, hidden)
  virtual void embed(float* out, const TokenId* tokens, int token_count, const Matrix& table) = 0;

  // out[t] = x[t] / rms(x[t]) * weight. out, x: float (tokens, hidden), may be the same;
  // weight: float (hidden).
  virtual void rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                        float epsilon) = 0;

  // out[t] += x[t] / rms(x[t]) * weight. Shapes as of rms_norm; out is not x.
  virtual void add_rms_norm(float* out, const float* x, const float* weight, int tokens, int hidden,
                            float epsilon) = 0;

  // out[t] += scale * x[t]. Shapes as of rms_norm; out is not x.
  virtual void add_scaled(float* out, const float* x, float scale, int tokens, int hidden) = 0;

  // out[t] = (x[t] - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016). Shapes as
  // of rms_norm; bias: float (hidden).
  virtual void layer_norm(float* out, const float* x, const float* weight, const float* bias,
                          int tokens, int hidden, float epsilon) = 0;

  // Each head of x by itself, in place: head = head / rms(head) * weight (QK norm).
  // x: float (tokens, heads, head_size) with row stride `stride`; weight: float (head_size).
  virtual void rms_norm_heads(float* x, int64_t stride, const float* weight, int tokens, int heads,
                              int head_size, float epsilon) = 0;

  // out[t] = linear.weight x[t] + linear.bias (+ out[t] if accumulate).
  // out: float (tokens, rows); x: float (tokens, cols).
  enum class Output { kOverwrite, kAccumulate };
  virtual void linear(float* out, const float* x, const Linear& linear, int tokens,
                      Output output) = 0;

  // out[t][r] = matrix row r . x[t], with the bits that `linear` gives it, where bit r % 64 of
  // marks[t][r / 64] is set; the rest of `out` stays. The matrix is of a plain format.
  // out: float (tokens, rows); x: float (tokens, cols); marks: (tokens, mark_words(rows)), no bit
  // beyond the last row.
  virtual void linear_marked(float* out, const float* x, const Matrix& matrix,
                             const uint64_t* marks, int tokens) = 0;

  // Rotates in place. x: float (tokens, heads, head_stride), from the first rotated dimension on,
  // with row stride `stride`; cos_sin: float (tokens, size): size/2 cosines, then as many sines,
  // both already times YaRN's concentration.
  virtual void rotate(float* x, int64_t stride, const float* cos_sin, int tokens,
                      const RotaryShape& shape) = 0;

  // Writes each row's key and value to its place in the cache. Of one-byte types, head_size is at
  // most kHeadSizeMax (kernels/kv_quantization.h).
  // k, v: float (tokens, kv_heads, head_size) with row stride `stride`.
  virtual void store_kv(const KvLayer& cache, const float* k, const float* v, int64_t stride,
                        const SequenceRows* sequences, int sequence_count) = 0;

  // out: float (tokens, heads * head_size); q: float (tokens, heads, head_size), row stride
  // `stride`. The keys of the rows themselves must be in the cache already.
  virtual void attention(float* out, const float* q, int64_t stride, const KvLayer& cache,
                         const AttentionShape& shape, const SequenceRows* sequences,
                         int sequence_count) = 0;

  // out[t][h] = W_h x[t][h]. out: (rows) for each token and head, at `out_strides`; x: (cols),
  // likewise.
  virtual void linear_heads(float* out, const HeadStrides& out_strides, const float* x,
                            const HeadStrides& x_strides, const HeadMatrices& matrices,
                            int tokens) = 0;

  // out[t][h] = W_h^T x[t][h]. out: (cols) for each token and head, at `out_strides`; x: (rows),
  // likewise.
  virtual void linear_heads_transposed(float* out, const HeadStrides& out_strides, const float* x,
                                       const HeadStrides& x_strides, const HeadMatrices& matrices,
                                       int tokens) = 0;

  // Writes each row to its place in a latent cache. rows: float (tokens, head_size of the cache)
  // with row stride `stride`.
  virtual void store_latent(const KvLayer& cache, const float* rows, int64_t stride,
                            const SequenceRows* sequences, int sequence_count) = 0;

  // out: float (tokens, heads, rank); q: float (tokens, heads, width). The rows themselves must be
  // in the cache already.
  virtual void latent_attention(float* out, const float* q, const KvLayer& cache,
                                const LatentShape& shape, const SequenceRows* sequences,
                                int sequence_count) = 0;

  // gate[i] = glu(gate[i], up[i]), of a dense MLP. gate, up: float (count); a multiple of 32.
  virtual void glu(float* gate, const float* up, int64_t count, const GluShape& shape) = 0;

  // x[i] = activation(x[i]); x: float (count).
  virtual void activate(float* x, int64_t count, ActivationKind kind) = 0;

  // choices: (tokens, k), the best expert first, the lower one among equals. logits: float (tokens,
  // experts).
  virtual void route(ExpertChoice* choices, const float* logits, int tokens,
                     const RouterShape& shape) = 0;

  // out[t] += sum_j choices[t][j].weight * (down_e glu(gate_e x[t], up_e x[t]) + bias_e)
  // out: float (tokens, rows of down); x: float (tokens, hidden). The same weights give the same
  // bits in either MXFP4 format.
  virtual void experts(float* out, const float* x, const ExpertChoice* choices,
                       const ExpertWeights& weights, const MoeShape& shape, int tokens) = 0;

  // out[t] += scale * B (A x[t]) for each row t of each group, and no other row is touched. A row's
  // bits depend on the row and its adapter alone.
  // out: float (tokens, rows) with row stride `stride`; x: float (tokens, cols).
  virtual void add_low_rank(float* out, int64_t stride, const float* x, const AdaptedRows* groups,
                            int group_count) = 0;
};

enum class KernelChoice { kAuto, kReference, kAvx512, kAvx2, kNeon };

// kUnsupported if this processor lacks what `choice` needs. `pool` outlives the kernels.
Result<std::unique_ptr<Kernels>> make_kernels(KernelChoice choice, base::ThreadPool& pool);
Result<KernelChoice> parse_kernel_choice(std::string_view name);

}  // namespace pelton::kernels
