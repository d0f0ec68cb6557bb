// The arithmetic of a transformer step on the host, as a seam with several real implementations:
// reference (plain float32 with double sums, the measure of the others), and the fast ones of
// kernels/cpu (AVX-512, AVX2). Chosen once at start.
//
// Every implementation is batch-invariant: a row's result does not depend on how many rows there
// are, how they are cut into steps, or how many threads share the work. Activations are float32
// throughout. Called by one thread (the executor's), which the pool's workers help. Shapes are
// CHECKed by callers in layers/; weights point into the mapped checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "base/token_id.h"
#include "tensor/dtype.h"

namespace pelton::kernels {

using Bf16 = uint16_t;  // the upper half of a float32
struct F16 {            // IEEE binary16
  uint16_t bits;
};

// weight: bf16 (rows, cols), row-major; bias: bf16 (rows) or null.
struct Bf16Linear {
  const Bf16* weight = nullptr;
  const Bf16* bias = nullptr;
  int rows = 0;
  int cols = 0;
};

// One matrix for each expert, MXFP4 (OCP MX 1.0): blocks (experts, rows, cols/32, 16), byte b of a
// block holds elements 2b (low nibble) and 2b+1; scales (experts, rows, cols/32) E8M0; bias bf16
// (experts, rows).
struct Mxfp4Experts {
  const uint8_t* blocks = nullptr;
  const uint8_t* scales = nullptr;
  const Bf16* bias = nullptr;
  int experts = 0;
  int rows = 0;
  int cols = 0;
};

// Keys and values of one layer in one block group. A block holds, for each kv head, keys transposed
// (head_size, block_tokens) and then values (block_tokens, head_size).
struct KvLayer {
  void* data = nullptr;
  tensor::DType dtype = tensor::DType::kF16;  // kF16, kBf16 or kF32
  int block_tokens = 16;
  int kv_heads = 0;
  int head_size = 0;

  int64_t block_elements() const { return int64_t{2} * kv_heads * block_tokens * head_size; }
};

// The rows of one sequence in this step: row_begin.. are positions start.. The rows of a step's
// sequences lie one after the other.
struct SequenceRows {
  int row_begin = 0;
  int row_count = 0;
  int start = 0;
  const int32_t* blocks = nullptr;  // this layer group's table, by position / block_tokens
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  int window = 0;               // a query at p sees keys max(0, p-window+1)..p; 0: all up to p
  const Bf16* sinks = nullptr;  // (heads): one extra logit in the softmax, without a value
  float scale = 1.0f;
};

struct ExpertChoice {
  int32_t expert = 0;
  float weight = 0.0f;
};

struct MoeShape {
  int experts_per_token = 0;
  float swiglu_alpha = 1.702f;
  float swiglu_limit = 7.0f;
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual std::string_view name() const = 0;   // "reference", "avx512", "avx2"
  virtual tensor::DType kv_dtype() const = 0;  // what it keeps keys and values in by default

  // out: float (tokens, hidden) = table[token]; table: bf16 (vocab, hidden)
  virtual void embed(float* out, const TokenId* tokens, int token_count, const Bf16* table,
                     int hidden) = 0;

  // out[t] = x[t] / rms(x[t]) * weight. out, x: float (tokens, hidden), may be the same;
  // weight: bf16 (hidden).
  virtual void rms_norm(float* out, const float* x, const Bf16* weight, int tokens, int hidden,
                        float epsilon) = 0;

  // out[t] = linear.weight x[t] + linear.bias (+ out[t] if accumulate).
  // out: float (tokens, rows); x: float (tokens, cols).
  enum class Output { kOverwrite, kAccumulate };
  virtual void linear(float* out, const float* x, const Bf16Linear& linear, int tokens,
                      Output output) = 0;

  // Rotates in place, half-split pairs (i, i + head_size/2).
  // x: float (tokens, heads, head_size) with row stride `stride`; cos_sin: float (tokens,
  // head_size): head_size/2 cosines, then as many sines, both already times YaRN's concentration.
  virtual void rotate(float* x, int64_t stride, const float* cos_sin, int tokens, int heads,
                      int head_size) = 0;

  // Writes each row's key and value to its place in the cache.
  // k, v: float (tokens, kv_heads, head_size) with row stride `stride`.
  virtual void store_kv(const KvLayer& cache, const float* k, const float* v, int64_t stride,
                        const SequenceRows* sequences, int sequence_count) = 0;

  // out: float (tokens, heads * head_size); q: float (tokens, heads, head_size), row stride
  // `stride`. The keys of the rows themselves must be in the cache already.
  virtual void attention(float* out, const float* q, int64_t stride, const KvLayer& cache,
                         const AttentionShape& shape, const SequenceRows* sequences,
                         int sequence_count) = 0;

  // choices: (tokens, k) the k largest of logits[t] in descending order, the lower expert among
  // equals; weights: softmax over those k. logits: float (tokens, experts).
  virtual void choose_experts(ExpertChoice* choices, const float* logits, int tokens, int experts,
                              int k) = 0;

  // out[t] += sum_j choices[t][j].weight * (down_e swiglu(gate_up_e x[t] + b1_e) + b2_e)
  // out, x: float (tokens, hidden). gate_up rows are interleaved: 2i gate, 2i+1 up.
  virtual void experts(float* out, const float* x, const ExpertChoice* choices,
                       const Mxfp4Experts& gate_up, const Mxfp4Experts& down, const MoeShape& shape,
                       int tokens) = 0;
};

enum class KernelChoice { kAuto, kReference, kAvx512, kAvx2 };

// kUnsupported if this processor lacks what `choice` needs. `pool` outlives the kernels.
Result<std::unique_ptr<Kernels>> make_kernels(KernelChoice choice, base::ThreadPool& pool);
Result<KernelChoice> parse_kernel_choice(std::string_view name);  // auto, reference, avx512, avx2

}  // namespace pelton::kernels
