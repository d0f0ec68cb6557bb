// The kernels of a forward pass as operations on a device's memory, one struct of arguments each:
// what a step is made of (device/session.cc), and what tests and benchmarks call one by one. Plain
// data; addresses are the device's. Shapes as (rows, columns), the last index fastest.
//
// Rows of bf16 activations that enter a product are padded_columns() wide; what lies beyond the
// columns is zero. `live` is a number in the device's memory: how many rows (or tiles) there really
// are, so that a recorded graph serves every count up to the `..._max` it was recorded for.
#pragma once

#include <cstdint>

#include "cuda/kernel_config.h"
#include "cuda/row_sampling.h"
#include "cuda/weight_tiles.h"

namespace pelton::cuda {

using Bf16Bits = uint16_t;

inline constexpr int kBlockTokens = 16;   // of a block of keys and values
inline constexpr int kSpanTokens = 128;   // whose softmax is computed apart
inline constexpr int kQueryRows = 16;     // (token, head) pairs that a warp attends with
inline constexpr int kExpertsMax = 1024;  // that the router chooses among
inline constexpr int kChoicesMax = 8;     // for a token

// A matrix, or one for each expert, in tiles (weight_tiles.h).
struct Weights {
  const void* data = nullptr;
  const uint32_t* scales = nullptr;  // of MXFP4
  const float* bias = nullptr;       // (experts, rows), rows in the matrix's order; or null
  WeightType type = WeightType::kBf16;
  int32_t rows = 0;
  int32_t columns = 0;
  int32_t experts = 1;
  float factor = 1;  // a power of two that all results are multiplied with
};

// Columns of a product that belong to one expert: entries[first ...first + count).
struct ExpertTile {
  int32_t expert;
  int32_t first;
  int32_t count;
};

// An entry is token * choices + index of the choice. Written by `group`.
struct Grouping {
  const int32_t* tile_count = nullptr;
  const ExpertTile* tiles = nullptr;
  const int32_t* entries = nullptr;
  int32_t tiles_max = 0;
  int32_t columns = 0;  // of a tile, at most
  int32_t choices = 0;
};

// x[row] = table[token[row]]: float (rows, hidden) of bf16 (vocab, hidden). A token below 0 is the
// one that row ~token of the step before was given, if it was (else token 0: nobody will look).
struct Embed {
  float* x;
  const int32_t* tokens;
  const Bf16Bits* table;
  const int32_t* live;
  int32_t rows_max;
  int32_t hidden;
  const SampledRow* sampled = nullptr;
};

// If y: x[row] += sum_j weight[row][j] * y[row * choices + j], one after the other.
// out[i] = bf16(x[r] * weight / rms(x[r])), r = rows[i] or i; low: what bf16 has left of it.
struct Norm {
  float* x;                     // (rows, hidden)
  const float* weight;          // (hidden)
  Bf16Bits* out;                // (rows, padded hidden)
  Bf16Bits* low;                // the same, or null
  const int32_t* rows;          // or null
  const float* y;               // (rows * choices, hidden), or null
  const float* choice_weights;  // (rows, choices)
  const int32_t* live;
  int32_t rows_max;
  int32_t hidden;
  int32_t choices;
  float epsilon;
};

// Where the operand of a product comes from. bf16 (rows, padded columns).
struct ProductInput {
  const Bf16Bits* x;
  const Bf16Bits* low;  // added to x: for the router, whose choices must not hang on rounding
  const int32_t* live;
  int32_t rows_max;
};

// out[row] = W x[row] + bias: float (rows, W.rows), of stride `stride`.
struct Linear {
  Weights weights;
  ProductInput input;
  float* out;
  int64_t stride;
  int32_t accumulate;        // 1: out += instead
  KernelConfig config = {};  // here and below: none named, and constants choose
};

// How keys and values are kept, and what attention computes with: float16 (saturating, as the host
// keeps them: docs/decisions/0005), bf16, or e4m3 codes with a bf16 scale for each token's key and
// value in each head (kernels/kv_quantization.h).
enum class KvType : int32_t { kF16, kBf16, kFp8 };

constexpr const char* kv_type_name(KvType type) {
  return type == KvType::kFp8 ? "fp8" : type == KvType::kBf16 ? "bf16" : "f16";
}

// A layer's part of a KV group. A block is, for each kv head,
//   f16, bf16: keys (16, head_size), then values transposed (head_size, 16);
//   fp8:       codes of keys (16, head_size), then codes of values as value_code_place() says,
//              then scales, bf16 (2, 16): the keys', the values'.
struct KvCache {
  void* data;
  int32_t kv_heads;
  int32_t head_size;
  KvType type = KvType::kF16;
};

// Of one kv head in a block: a multiple of 64.
constexpr int64_t kv_head_bytes(KvType type, int head_size) {
  return int64_t{2} * kBlockTokens * (type == KvType::kFp8 ? head_size + 2 : 2 * head_size);
}

// Where the code of a value's element stands among those of its head: as a warp's lanes hold the
// right operand of mma.sync, lane 4g + t 16 bytes of every 32 elements (elements g, 8 + g, 16 + g
// and 24 + g of tokens 4t to 4t + 3).
constexpr int value_code_place(int element, int token) {
  const int lane = 4 * (element % 8) + token / 4;
  return element / 32 * 512 + lane * 16 + element % 32 / 8 * 4 + token % 4;
}

// Queries, keys and values of all heads: rows of W in RowOrder::kHeads, turned by their position.
// A code's scale hangs on all elements of its vector, which several blocks of threads compute: fp8
// keys and values therefore go to `staged`, and StoreKv takes them from there.
struct Qkv {
  Weights weights;
  ProductInput input;
  uint16_t* q;  // (rows, heads, head_size): float16 where keys are, else bf16
  KvCache cache;
  const int32_t* positions;  // (rows)
  const int64_t* slots;      // (rows): block * 16 + place in it; negative: keep nothing
  const float* turns;        // (positions, head_size): cosines, then sines
  int32_t heads;
  float* staged = nullptr;  // of fp8: (rows, 2 kv_heads, head_size), keys before values
  KernelConfig config = {};
};

// Codes what Qkv staged into an fp8 cache.
struct StoreKv {
  const float* staged;
  KvCache cache;
  const int64_t* slots;
  const int32_t* live;
  int32_t rows_max;
};

// What one warp does: kQueryRows / (heads / kv_heads) consecutive rows of a sequence at most, and
// spans [span_begin, span_end) of what they see. Without a `partial` that is all of them and the
// result is final; otherwise (one row) each span's part goes to `partials`, to be merged.
struct AttentionItem {
  int32_t first_row;
  int32_t row_count;  // 0: nothing to do
  int32_t start;      // position of the first row
  int32_t table;      // index into `tables` of the sequence's first block
  int32_t span_begin;
  int32_t span_end;
  int32_t partial;  // index into `partials`; negative: none
};

struct Attention {
  Bf16Bits* out;      // (rows, padded heads * head_size)
  const uint16_t* q;  // (rows, heads, head_size): float16 where keys are, else bf16
  KvCache cache;
  const int32_t* tables;  // block numbers by position / 16
  const AttentionItem* items;
  const float* sinks;           // (heads)
  float* partials;              // (any, heads, spans_max, head_size + 2): values, highest, sum
  const int32_t* positions;     // (rows)
  const int32_t* live;          // rows
  const int32_t* partial_rows;  // (rows): each row's index into `partials`; negative: none
  int32_t rows_max;
  int32_t items_max;
  int32_t spans_max;  // 0: no item has a partial
  int32_t heads;
  int32_t window;  // 0: none
  float scale;
};

// The k best experts of each row, the lower number among equals; weights: softmax over them.
struct Choose {
  const float* logits;  // (rows, experts)
  int32_t* choices;     // (rows, k)
  float* weights;       // (rows, k)
  const int32_t* live;
  int32_t rows_max;
  int32_t experts;
  int32_t k;
};

// Entries by expert, in order of their number, and the tiles that they make.
struct Group {
  const int32_t* choices;  // (rows, k)
  int32_t* entries;        // (rows * k)
  ExpertTile* tiles;       // (tiles_max)
  int32_t* tile_count;
  const int32_t* live;
  int32_t rows_max;
  int32_t experts;
  int32_t k;
  int32_t columns;  // of a tile
};

// h[entry] = swiglu(W_e x[row of entry]), bf16 (entries, padded inner). W in RowOrder::kGateUp,
// rows = 2 inner; bias (experts, 2 inner): gate's, then up's. A named config takes as many columns
// as the grouping's tiles.
struct GateUp {
  Weights weights;
  const Bf16Bits* x;
  Bf16Bits* h;
  Grouping grouping;
  float alpha;
  float limit;
  KernelConfig config = {};
};

// y[entry] = W_e h[entry] + bias: float (entries, hidden)
struct Down {
  Weights weights;
  const Bf16Bits* h;
  float* y;
  Grouping grouping;
  KernelConfig config = {};
};

// ---- drawing a token from each row of logits (device/sampling.h) ----

inline constexpr int kSliceLogits = 8192;  // of a row, for one block
inline constexpr int kBuckets = 2048;      // that a range of logits is counted in

constexpr int slice_count(int vocab) {
  return (vocab + kSliceLogits - 1) / kSliceLogits;
}

struct SampleBuckets {
  uint64_t masses[kBuckets];
  uint32_t counts[kBuckets];
};

enum class Cut : int32_t { kNone, kCount, kMass };

// What is known of a row between two launches. All zero before the first.
struct SampleState {
  uint64_t best;        // rank key of the highest logit, then its id inverted
  uint64_t need;        // of the front that is looked for, behind what is above high_key
  uint64_t mass_above;  // of what is above high_key; of the front, once that is found
  uint64_t equals;      // so many of those that equal the front's last belong to it
  uint32_t broken;
  uint32_t arrived;  // blocks that are done with their part of a launch
  uint32_t is_open;  // 0: there is nothing to draw, or it has been drawn
  uint32_t low_key;  // the front ends between these
  uint32_t high_key;
  uint32_t last_key;  // of the front; 0: it is everything
  uint32_t gathered;
  Cut cut;  // what is looked for; kNone: the front is known
  float highest;
};

struct Sample {
  float* logits;  // (rows, stride); edited
  int64_t stride;
  const int32_t* counts;  // rows, vocab
  const RowSampling* rows;
  LogitEdit* edits;  // a token of the step before takes its place there
  const uint64_t* masks;
  float* before;            // (edits): the logit that an edit found
  SampleState* states;      // (rows)
  SampleBuckets* buckets;   // (rows, 2): all zero, and so they are left
  uint64_t* slice_masses;   // (rows, slices)
  uint64_t* slice_equals;   // (rows, slices)
  SampledRow* results;      // (rows); at first those of the step before
  ReportedToken* reported;  // (rows, kReportedMax)
  int32_t rows_max;
  int32_t slices;   // slice_count of the most tokens that `counts` may say
  int32_t reports;  // 1: of the row as it came; else of the edited one, among what is allowed
  SamplingNeeds needs;
};

// Numbers of a seed, for measuring where weights cannot be had: `count` elements at `data`.
enum class RandomKind : int32_t {
  kBits,    // words of any bits: MXFP4 codes
  kBf16,    // bf16 in [-scale, scale)
  kFloat,   // float in [-scale, scale)
  kScales,  // E8M0, 2^-9 to 2^-6
};
struct Randomize {
  void* data;
  int64_t count;
  uint64_t seed;
  RandomKind kind;
  float scale;
};

// Most tiles that `entries` entries of `experts` experts can make.
constexpr int expert_tiles_max(int entries, int experts, int columns) {
  const int touched = entries < experts ? entries : experts;
  return touched + (entries - touched) / columns;
}

}  // namespace pelton::cuda
