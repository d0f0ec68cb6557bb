// Quantised activations and their products with tiles, written once over `Ints` (16 lanes of rows).
// Included inside the unnamed namespace of tiles_avx*.cc, each compiled with its own flags.

constexpr int kBlock = 32;                            // columns that share a scale
constexpr int64_t kSpreadBytes = kBlock * kTileRows;  // of a block of weights spread out as bytes
constexpr int kStreamTokens = 4;  // up to so many tokens the weights are read once, from memory
// Weights are asked for twice ahead of their use: far ahead into the second level of the cache,
// then into the first. Into the first only some 16 lines can be on their way at a time (two levels
// read a ninth more than one), and a line that the second has already is not long among them.
constexpr int64_t kFarBytes = 16384;
constexpr int64_t kNearBytes = 4096;
// Further still a line of each page, so that its address is translated when its turn comes: in a
// virtual machine that takes reads of its own.
constexpr int64_t kPageAheadBytes = kFarBytes + 32768;
constexpr int kPanelTiles = 2;   // tiles multiplied together when there are more
constexpr int kLyingGroups = 8;  // so many groups of tokens read weights as they lie

using L = Ints::Floats;  // 16 float lanes

inline void prefetch(const void* address) {
  __builtin_prefetch(address, 0, 3);
}

// How tiles are read: for the first time, from memory, or again.
enum class Reading { kFirst, kAgain };

template <Reading kReading = Reading::kFirst>
inline void ask_ahead(const uint8_t* line, int64_t far_bytes = kFarBytes) {
  if constexpr (kReading == Reading::kFirst) __builtin_prefetch(line + far_bytes, 0, 2);
  prefetch(line + kNearBytes);
}

template <typename T>
inline int64_t capacity_bytes(const std::vector<T>& vector) {
  return static_cast<int64_t>(vector.capacity() * sizeof(T));
}

// Rows of activations, ready to be multiplied. Row t, block b, plane p: 32 bytes.
struct QuantizedRows {
  std::vector<int8_t> values;  // (rows, blocks, planes, 32)
  std::vector<float> scales;   // (rows, blocks)
  // (rows, blocks, planes): what a block's sum begins with, because weights are stored with an
  // offset: less the offset times the sum of the 32 values.
  std::vector<int32_t> begins;
  int blocks = 0;
  int planes = 1;

  void reserve(int64_t rows, int cols, int plane_count) {
    const int64_t count = rows * (cols / kBlock);
    values.reserve(static_cast<size_t>(count * plane_count * kBlock));
    scales.reserve(static_cast<size_t>(count));
    begins.reserve(static_cast<size_t>(count * plane_count));
  }
  int64_t bytes() const {
    return capacity_bytes(values) + capacity_bytes(scales) + capacity_bytes(begins);
  }
  void resize(int64_t rows, int cols, int plane_count) {
    blocks = cols / kBlock;
    planes = plane_count;
    values.resize(static_cast<size_t>(rows * blocks * planes * kBlock));
    scales.resize(static_cast<size_t>(rows * blocks));
    begins.resize(static_cast<size_t>(rows * blocks * planes));
  }
};

// Where one row of activations stands.
struct RowView {
  const int8_t* values;
  const float* scales;
  const int32_t* begins;
};

inline RowView row_view(const QuantizedRows& rows, int64_t row) {
  const int64_t block = row * rows.blocks;
  return {rows.values.data() + block * rows.planes * kBlock, rows.scales.data() + block,
          rows.begins.data() + block * rows.planes};
}

// How a format stores its weights: (number - offset) * unit * scale.
struct WeightCode {
  float unit;
  int32_t offset;
};

// Quantises 32 floats into block `block` of row `row`, to be multiplied with weights of `code`.
//
// One plane: 127, 1, 0 ... have the scale 1 and are 127, 1, 0 ... Multiplied with the weights 3,
// -2, 0 ..., which are stored as 131, 126, 128 ... (offset 128): 131 * 127 + 126 * 1 = 16763; as
// the sum began with -128 * (127 + 1) = -16384, the dot product is 379 = 3 * 127 - 2. Two planes:
// 16256, 200, 0 ... have the scale 1; 200 = 128 * 2 - 56 is 2 in the high plane and -56 in the low
// one, 16256 is 127 and 0. The planes' dot products, 377 and 112, come to 377 * 128 + 112 = 48368 =
// 3 * 16256 - 2 * 200 (block_sum).
template <int kPlanes>
inline void quantize_block(const float* x, QuantizedRows& to, int64_t row, int block,
                           WeightCode code) {
  // NaN makes the scale NaN: damage is passed on, not hidden.
  const float largest = Ints::largest_or_nan(x);
  constexpr float kLevels = kPlanes == 1 ? 127.0f : 16256.0f;
  const int64_t at = row * to.blocks + block;
  to.scales[at] = largest / kLevels * code.unit;
  int8_t* values = to.values.data() + at * kPlanes * kBlock;
  constexpr float kNothing = 1e-30f;  // less has no reciprocal that a float could hold
  if (!(largest > kNothing)) {        // also NaN, which the scale shows
    __builtin_memset(values, 0, kPlanes * kBlock);
    for (int p = 0; p < kPlanes; ++p) to.begins[at * kPlanes + p] = 0;
    return;
  }
  const float inverse = kLevels / largest;
  int32_t sums[kPlanes] = {};
  for (int i = 0; i < kBlock; ++i) {
    // To nearest even: adding 1.5 * 2^23 leaves the integer in the low bits.
    const float shifted = x[i] * inverse + 12582912.0f;
    const int32_t value = __builtin_bit_cast(int32_t, shifted) - 0x4B400000;
    if constexpr (kPlanes == 1) {
      values[i] = static_cast<int8_t>(value);
      sums[0] += value;
    } else {
      const int32_t high = (value + 64) >> 7;
      const int32_t low = value - high * 128;
      values[i] = static_cast<int8_t>(high);
      values[kBlock + i] = static_cast<int8_t>(low);
      sums[0] += high;
      sums[1] += low;
    }
  }
  for (int p = 0; p < kPlanes; ++p) {
    to.begins[at * kPlanes + p] = -Ints::offset(code.offset) * sums[p];
  }
}

// The tiles of a matrix, block by block: eight vectors of weights, each four columns of 16 rows.
struct Int8Tile {
  static constexpr Format kFormat = Format::kInt8Tiles;
  static constexpr WeightCode kCode{1.0f, 128};
  static constexpr tensor::TileShape kShape = tensor::kInt8TileShape;
  static constexpr bool kBytes = true;
  const uint8_t* tile;

  template <Reading kReading>
  void load_pair(int64_t block, int pair, int64_t far_bytes, Ints::Bytes out[2]) const {
    const uint8_t* from = tile + kShape.weights_at(block) + pair * 128;
    ask_ahead<kReading>(from, far_bytes);
    ask_ahead<kReading>(from + 64, far_bytes);
    out[0] = Ints::from_offset_bytes(from);
    out[1] = Ints::from_offset_bytes(from + 64);
  }
  void load(int64_t block, Ints::Bytes out[8]) const {
    const uint8_t* from = tile + kShape.weights_at(block);
    for (int g = 0; g < 8; ++g) {
      ask_ahead(from + g * 64);
      out[g] = Ints::from_offset_bytes(from + g * 64);
    }
  }
  L scales(int64_t block) const { return Ints::half_floats(tile + kShape.scales_at(block)); }
};

// Four bits each, two of a line's vectors from every 64 bytes.
template <Format kFormatOf, auto kUnpack>
struct FourBitTile {
  static constexpr Format kFormat = kFormatOf;
  static constexpr bool kBytes = false;
  static constexpr tensor::TileShape kShape =
      kFormat == Format::kMxfp4Tiles ? tensor::kMxfp4TileShape : tensor::kInt4TileShape;
  const uint8_t* tile;

  template <Reading kReading>
  void load_pair(int64_t block, int pair, int64_t far_bytes, Ints::Bytes out[2]) const {
    const uint8_t* from = tile + kShape.weights_at(block) + pair * 64;
    ask_ahead<kReading>(from, far_bytes);
    kUnpack(from, &out[0], &out[1]);
  }
  void load(int64_t block, Ints::Bytes out[8]) const {
    const uint8_t* from = tile + kShape.weights_at(block);
    for (int j = 0; j < 4; ++j) {
      ask_ahead(from + j * 64);
      kUnpack(from + j * 64, &out[2 * j], &out[2 * j + 1]);
    }
  }
};

struct Mxfp4Tile : FourBitTile<Format::kMxfp4Tiles, Ints::from_codes> {
  static constexpr WeightCode kCode{0.5f, 12};  // codes stand for twice their values
  L scales(int64_t block) const { return Ints::powers(tile + kShape.scales_at(block)); }
};

struct Int4Tile : FourBitTile<Format::kInt4Tiles, Ints::from_nibbles> {
  static constexpr WeightCode kCode{1.0f, 8};
  L scales(int64_t block) const { return Ints::half_floats(tile + kShape.scales_at(block)); }
};

// Where panels find the weights of a block, two groups of four columns at a time.

template <typename Tile>
struct Place {
  Tile tile;
  uint8_t* room;      // for the tile spread out
  int64_t far_bytes;  // from here to the tile that takes this one's place next
};

// As they lie: int8 always, four bits for some tokens (to unpack them again for each group takes
// less than to keep them).
template <typename Tile, Reading kReading>
struct PackedSource : Place<Tile> {
  void begin(int64_t block) const { (void)block; }
  void load_pair(int64_t block, int pair, Ints::Bytes out[2]) const {
    this->tile.template load_pair<kReading>(block, pair, this->far_bytes, out);
  }
};
template <typename Tile>
using Packed = PackedSource<Tile, Reading::kFirst>;
template <typename Tile>
using PackedAgain = PackedSource<Tile, Reading::kAgain>;

// UnpackedSource out as bytes, which many tokens share: once they have been ...
template <typename Tile>
struct UnpackedSource : Place<Tile> {
  void begin(int64_t block) const { (void)block; }
  void load_pair(int64_t block, int pair, Ints::Bytes out[2]) const {
    const uint8_t* from = this->room + block * kSpreadBytes + pair * 128;
    out[0] = Ints::from_spread(from);
    out[1] = Ints::from_spread(from + 64);
  }
};

// ... and on the way, so that the first tokens are multiplied while the weights come from memory.
template <typename Tile>
struct Unpacking : UnpackedSource<Tile> {
  void begin(int64_t block) const {
    Ints::Bytes weights[8];
    this->tile.load(block, weights);
    uint8_t* to = this->room + block * kSpreadBytes;
    for (int g = 0; g < 8; ++g) Ints::store_spread(to + g * 64, weights[g]);
  }
};

template <int kPlanes>
inline L block_sum(const Ints dots[kPlanes], L weight_scales, float scale, L sum) {
  Ints dot = dots[0];
  if constexpr (kPlanes == 2) dot = Ints::add(Ints::shift_left_7(dots[0]), dots[1]);
  return Ints::fma(Ints::to_floats(dot), Ints::mul(weight_scales, Ints::set1(scale)), sum);
}

// sums[t] = the tile's 16 rows . x[t]. Not inlined, and everything in its own variables: among
// others the compiler keeps some of it in memory, which takes up to twice as long.
template <int kTokens, int kPlanes, typename Tile>
[[gnu::noinline]] void stream_tile(Tile tile, int64_t blocks, const RowView* x, L sums[kTokens]) {
  const int8_t* values[kTokens];
  const float* scales[kTokens];
  const int32_t* begins[kTokens];
  L sum[kTokens];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    values[t] = x[t].values;
    scales[t] = x[t].scales;
    begins[t] = x[t].begins;
    sum[t] = Ints::zero_floats();
  }
  for (int64_t b = 0; b < blocks; ++b) {
    Ints::Bytes weights[8];
    tile.load(b, weights);
    const L weight_scales = tile.scales(b);
    // Sums side by side: each waits for its last product, and the compiler keeps this order.
    Ints dots[kTokens][kPlanes];
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < kPlanes; ++p) dots[t][p] = Ints::begin(begins[t] + b * kPlanes + p);
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          const int8_t* four = values[t] + (b * kPlanes + p) * kBlock + 4 * g;
          dots[t][p] = Ints::dot(dots[t][p], weights[g], four);
        }
      }
    }
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      sum[t] = block_sum<kPlanes>(dots[t], weight_scales, scales[t][b], sum[t]);
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) sums[t] = sum[t];
}

// The same for one token: so little to compute that memory decides. By lines of scales, as few
// instructions for a byte as can be, so that the processor looks far ahead.
template <int kPlanes, typename Tile>
[[gnu::noinline]] void stream_row(Tile tile, int64_t blocks, const RowView& x, L sums[1]) {
  constexpr int64_t kLine = Tile::kShape.blocks_of_line();
  const RowView row = x;
  L sum = Ints::zero_floats();
  for (int64_t line = 0; line < blocks; line += kLine) {
    prefetch(tile.tile + kPageAheadBytes);
    ask_ahead(tile.tile);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLine; ++i) {
      const int64_t b = line + i;
      if (b == blocks) break;
      Ints::Bytes weights[8];
      tile.load(i, weights);
      Ints dots[kPlanes];
#pragma GCC unroll 2
      for (int p = 0; p < kPlanes; ++p) dots[p] = Ints::begin(row.begins + b * kPlanes + p);
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          const int8_t* four = row.values + (b * kPlanes + p) * kBlock + 4 * g;
          dots[p] = Ints::dot(dots[p], weights[g], four);
        }
      }
      sum = block_sum<kPlanes>(dots, tile.scales(i), row.scales[b], sum);
    }
    tile.tile += Tile::kShape.group_bytes();
  }
  sums[0] = sum;
}

// Two tiles, kTokens tokens: sums[i][t].
template <int kTokens, int kPlanes, typename Tile, typename Source>
[[gnu::noinline]] void panel_tiles(const Source* panel, int64_t blocks, const RowView* x,
                                   L sums[kPanelTiles][kTokens]) {
  const Source tiles[kPanelTiles] = {panel[0], panel[1]};
  static_assert(kPanelTiles == 2);
  RowView rows[kTokens];
  L sum[kPanelTiles][kTokens];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    rows[t] = x[t];
    sum[0][t] = sum[1][t] = Ints::zero_floats();
  }
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 2
    for (int i = 0; i < kPanelTiles; ++i) tiles[i].begin(b);
    Ints dots[kPanelTiles][kTokens][kPlanes];
#pragma GCC unroll 2
    for (int i = 0; i < kPanelTiles; ++i) {
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          dots[i][t][p] = Ints::begin(rows[t].begins + b * kPlanes + p);
        }
      }
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      Ints::Bytes weights[kPanelTiles][2];
#pragma GCC unroll 2
      for (int i = 0; i < kPanelTiles; ++i) tiles[i].load_pair(b, pair, weights[i]);
#pragma GCC unroll 2
      for (int g = 0; g < 2; ++g) {
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
          for (int p = 0; p < kPlanes; ++p) {
            const Ints::Four four =
                Ints::broadcast(rows[t].values + (b * kPlanes + p) * kBlock + 8 * pair + 4 * g);
#pragma GCC unroll 2
            for (int i = 0; i < kPanelTiles; ++i) {
              dots[i][t][p] = Ints::dot(dots[i][t][p], weights[i][g], four);
            }
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kPanelTiles; ++i) {
      const L weight_scales = tiles[i].tile.scales(b);
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        sum[i][t] = block_sum<kPlanes>(dots[i][t], weight_scales, rows[t].scales[b], sum[i][t]);
      }
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    sums[0][t] = sum[0][t];
    sums[1][t] = sum[1][t];
  }
}

// run.operator()<count>() for a count from 1 to kMost; nothing for 0.
template <int kMost, typename Run>
inline void with_count(int count, const Run& run) {
  if constexpr (kMost > 0) {
    if (count == kMost) return run.template operator()<kMost>();
    with_count<kMost - 1>(count, run);
  }
}

// emit(tile, token, sums) for each of the tiles [begin, end) and all tokens. `scratch`: this
// worker's room for kPanelTiles tiles spread out.
template <int kPlanes, typename Tile, typename Emit>
inline void multiply_tiles(const uint8_t* tiles, int64_t begin, int64_t end, int64_t blocks,
                           const RowView* x, int tokens, uint8_t* scratch, const Emit& emit) {
  const int64_t bytes = tile_bytes(Tile::kFormat, blocks * kBlock);
  const auto stream = [&](int64_t i, int first, int count) {
    const Tile tile{tiles + i * bytes};
    const auto run = [&]<int kTokens>() {
      L sums[kTokens];
      if constexpr (kTokens == 1) {
        stream_row<kPlanes>(tile, blocks, x[first], sums);
      } else {
        stream_tile<kTokens, kPlanes>(tile, blocks, x + first, sums);
      }
      for (int t = 0; t < kTokens; ++t) emit(i, first + t, sums[t]);
    };
    with_count<kStreamTokens>(count, run);
  };
  if (tokens <= kStreamTokens || end - begin < kPanelTiles) {
    for (int64_t i = begin; i < end; ++i) {
      for (int t = 0; t < tokens; t += kStreamTokens) {
        stream(i, t, tokens - t < kStreamTokens ? tokens - t : kStreamTokens);
      }
    }
    return;
  }
  // Groups of equal size: a small one at the end would wait for its own sums. 13 tokens, of which 6
  // fit: 4, 4 and 5, not 6, 6 and 1.
  constexpr int kMost = Ints::kPanelTokens / kPlanes;
  const int groups = (tokens + kMost - 1) / kMost;
  int64_t first = begin;
  for (; first + kPanelTiles <= end; first += kPanelTiles) {
    const auto panel = [&]<template <typename> typename Source>(int group) {
      const int t = static_cast<int>(int64_t{tokens} * group / groups);
      const int next = static_cast<int>(int64_t{tokens} * (group + 1) / groups);
      Source<Tile> sources[kPanelTiles];
      for (int i = 0; i < kPanelTiles; ++i) {
        sources[i].tile = {tiles + (first + i) * bytes};
        sources[i].room = scratch + i * blocks * kSpreadBytes;
        sources[i].far_bytes = kPanelTiles * bytes;
      }
      with_count<kMost>(next - t, [&]<int kTokens>() {
        L sums[kPanelTiles][kTokens];
        panel_tiles<kTokens, kPlanes, Tile>(sources, blocks, x + t, sums);
        for (int i = 0; i < kPanelTiles; ++i) {
          for (int j = 0; j < kTokens; ++j) emit(first + i, t + j, sums[i][j]);
        }
      });
    };
    for (int group = 0; group < groups; ++group) {
      if (Tile::kBytes || groups <= kLyingGroups) {
        if (group == 0) {
          panel.template operator()<Packed>(group);
        } else {
          panel.template operator()<PackedAgain>(group);
        }
      } else if (group == 0) {
        panel.template operator()<Unpacking>(group);
      } else {
        panel.template operator()<UnpackedSource>(group);
      }
    }
  }
  for (; first < end; ++first) {
    for (int t = 0; t < tokens; t += kStreamTokens) {
      stream(first, t, tokens - t < kStreamTokens ? tokens - t : kStreamTokens);
    }
  }
}

struct VectorProducts {
  template <int kPlanes, typename Tile, typename Emit>
  static void multiply(const uint8_t* tiles, int64_t begin, int64_t end, int64_t blocks,
                       const RowView* x, int tokens, uint8_t* scratch, const Emit& emit) {
    multiply_tiles<kPlanes, Tile>(tiles, begin, end, blocks, x, tokens, scratch, emit);
  }
};

// e^x: 2^n e^r with |r| <= ln(2)/2, e^r by its Taylor series to r^6 (error below 2e-7 relative).
inline L lanes_exp(L x) {
  x = Ints::max(Ints::min(x, Ints::set1(88.0f)), Ints::set1(-87.0f));
  const L n = Ints::round(Ints::mul(x, Ints::set1(1.44269504f)));
  L r = Ints::fma(n, Ints::set1(-0.693359375f), x);
  r = Ints::fma(n, Ints::set1(2.12194440e-4f), r);
  L e = Ints::set1(1.0f / 720);
  for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    e = Ints::fma(e, r, Ints::set1(term));
  }
  return Ints::scale_by_power(e, n);
}

// 16 activations: min(gate, limit) * sigmoid(alpha * gate) * (clamp(up) + 1)
inline void swiglu_tile(float* out, const float* gate, const float* up, const MoeShape& shape) {
  const L limit = Ints::set1(shape.glu.limit);
  const L low = Ints::set1(-shape.glu.limit);
  const L one = Ints::set1(1.0f);
  // Of two operands the second is taken where one is NaN: so NaN stays.
  const L g = Ints::min(limit, Ints::load(gate));
  const L u = Ints::max(low, Ints::min(limit, Ints::load(up)));
  const L e = lanes_exp(Ints::mul(Ints::set1(-shape.glu.alpha), g));
  const L sigmoid = Ints::div(one, Ints::add(one, e));
  Ints::store(out, Ints::mul(Ints::mul(g, sigmoid), Ints::add(u, one)));
}

// out += the chosen experts' outputs (k, rows), weighted, best first.
inline void mix_experts(float* out, const ExpertChoice* choices, const float* outputs, int k,
                        int rows) {
  for (int i = 0; i < rows; i += kTileRows) {
    L sum = Ints::zero_floats();
    for (int j = 0; j < k; ++j) {
      sum = Ints::fma(Ints::set1(choices[j].weight), Ints::load(outputs + int64_t{j} * rows + i),
                      sum);
    }
    Ints::store(out + i, Ints::add(Ints::load(out + i), sum));
  }
}
