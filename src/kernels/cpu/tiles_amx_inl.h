// Products of tiles with 16 tokens at a time by AMX, whose tile instructions multiply 16 rows of
// activations with a block of weights at once. Written over a `Unit`, the tile instructions: the
// processor's (tiles_amx.cc) or an emulation (tiles_amx_emulated_test.cc). Included inside the
// unnamed namespace of those files.
//
// A block's dot product starts from zero and is exact, and is added as everywhere else (block_sum):
// so the bits are those of all other implementations. Weights are spread out as signed bytes, so
// there is no offset to make up for. See docs/decisions/0027.

#include "kernels/cpu/tiles_avx512_inl.h"

// What LDTILECFG reads.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int kUnitTokens = 16;       // rows of a tile register
constexpr int kUnitTokensMin = 8;     // fewer take less time without the tiles: decision 0027
constexpr int64_t kChunkBlocks = 16;  // blocks of columns whose activations are brought together

// The tile registers. Sums take turns: while one block is multiplied, the last one's are stored.
constexpr int kSumTiles = 0;         // .. 3: 16 tokens x 16 rows; [turn][plane]
constexpr int kActivationTiles = 4;  // .. 5: 16 tokens x 32 columns; [turn], or [plane] of two
constexpr int kWeightTiles = 6;      // .. 7: 8 times four columns x 16 rows; [turn]

// Tiles are configured for as long as one lives: for a task, not for a thread's life, so that a
// thread which computes nothing has no 8 KB of tiles for the kernel to save and keeps no core
// awake.
template <typename Unit>
class ConfiguredTiles {
 public:
  ConfiguredTiles() {
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      const bool activations = i >= kActivationTiles && i < kWeightTiles;
      config.rows[i] = i >= kWeightTiles ? kBlock / 4 : kUnitTokens;
      config.row_bytes[i] = activations ? kBlock : 4 * kTileRows;
    }
    Unit::configure(config);
  }
  ~ConfiguredTiles() { Unit::release(); }
  ConfiguredTiles(const ConfiguredTiles&) = delete;
  ConfiguredTiles& operator=(const ConfiguredTiles&) = delete;
};

// The activations of up to 16 tokens in a chunk of columns. Tokens beyond are multiplied, too, with
// whatever stands there, and their sums forgotten.
template <int kPlanes>
struct UnitChunk {
  alignas(64) int8_t values[kChunkBlocks][kPlanes][kUnitTokens][kBlock] = {};
  alignas(64) float scales[kChunkBlocks][kUnitTokens] = {};

  void fill(const RowView* x, int tokens, int64_t first, int64_t blocks) {
    for (int t = 0; t < tokens; ++t) {
      for (int64_t b = 0; b < blocks; ++b) {
        const int8_t* from = x[t].values + (first + b) * kPlanes * kBlock;
        for (int p = 0; p < kPlanes; ++p) {
          __builtin_memcpy(values[b][p][t], from + p * kBlock, kBlock);
        }
        scales[b][t] = x[t].scales[first + b];
      }
    }
  }
};

template <typename Tile>
inline void spread_signed(Tile tile, int64_t first, int64_t blocks, uint8_t* to) {
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(Tile::kCode.offset));
  for (int64_t b = 0; b < blocks; ++b) {
    Ints::Bytes weights[8];
    tile.load(first + b, weights);
    for (int g = 0; g < 8; ++g) {
      Ints::store_spread(to + b * kSpreadBytes + g * 64, _mm512_sub_epi8(weights[g], offset));
    }
  }
}

// sums[t] += the tile's 16 rows . token t, over the chunk's blocks; `first` is the chunk's first
// block, `weights` the chunk's, spread out. Three stages at once: block i + 1 is multiplied, block
// i stored, and block i - 1, whose products have long arrived in memory, scaled and added. Of three
// blocks, by turns of the tile registers: multiply 0; store 0, multiply 1; store 1, multiply 2, add
// 0; store 2, add 1; add 2.
template <typename Unit, int kPlanes, typename Tile>
[[gnu::noinline]] void add_chunk(Tile tile, int64_t first, int64_t blocks, const uint8_t* weights,
                                 const UnitChunk<kPlanes>& chunk,
                                 float sums[kUnitTokens][kTileRows]) {
  alignas(64) int32_t dots[2][kPlanes][kUnitTokens][kTileRows];
  L sum[kUnitTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kUnitTokens; ++t) sum[t] = Ints::load(sums[t]);

  const auto multiply = [&]<int kTurn>(int64_t b) __attribute__((always_inline)) {
    constexpr int kWeights = kWeightTiles + kTurn;
    constexpr int kSums = kSumTiles + 2 * kTurn;
    constexpr int kValues = kActivationTiles + (kPlanes == 1 ? kTurn : 0);
    Unit::template load<kWeights>(weights + b * kSpreadBytes, 64);
    Unit::template load<kValues>(chunk.values[b][0], kBlock);
    Unit::template zero<kSums>();
    Unit::template multiply_add<kSums, kValues, kWeights>();
    if constexpr (kPlanes == 2) {
      Unit::template load<kValues + 1>(chunk.values[b][1], kBlock);
      Unit::template zero<kSums + 1>();
      Unit::template multiply_add<kSums + 1, kValues + 1, kWeights>();
    }
  };
  const auto store = [&]<int kTurn>() __attribute__((always_inline)) {
    constexpr int kSums = kSumTiles + 2 * kTurn;
    Unit::template store<kSums>(dots[kTurn][0], 4 * kTileRows);
    if constexpr (kPlanes == 2) {
      Unit::template store<kSums + 1>(dots[kTurn][1], 4 * kTileRows);
    }
  };
  const auto add = [&]<int kTurn>(int64_t b) __attribute__((always_inline)) {
    const L weight_scales = tile.scales(first + b);
#pragma GCC unroll 16
    for (int t = 0; t < kUnitTokens; ++t) {
      Ints planes[kPlanes];
#pragma GCC unroll 2
      for (int p = 0; p < kPlanes; ++p) planes[p] = {_mm512_load_si512(dots[kTurn][p][t])};
      sum[t] = block_sum<kPlanes>(planes, weight_scales, chunk.scales[b][t], sum[t]);
    }
  };

  multiply.template operator()<0>(0);
  for (int64_t b = 0; b < blocks; b += 2) {
    store.template operator()<0>();
    if (b + 1 < blocks) multiply.template operator()<1>(b + 1);
    if (b > 0) add.template operator()<1>(b - 1);
    if (b + 1 == blocks) break;
    store.template operator()<1>();
    if (b + 2 < blocks) multiply.template operator()<0>(b + 2);
    add.template operator()<0>(b);
  }
  if (blocks % 2 == 1) {
    add.template operator()<0>(blocks - 1);
  } else {
    add.template operator()<1>(blocks - 1);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kUnitTokens; ++t) Ints::store(sums[t], sum[t]);
}

template <typename Unit>
struct UnitProducts {
  template <int kPlanes, typename Tile, typename Emit>
  static void multiply(const uint8_t* tiles, int64_t begin, int64_t end, int64_t blocks,
                       const RowView* x, int tokens, uint8_t* scratch, const Emit& emit) {
    if (tokens < kUnitTokensMin) {
      multiply_tiles<kPlanes, Tile>(tiles, begin, end, blocks, x, tokens, scratch, emit);
      return;
    }
    const int64_t bytes = tile_bytes(Tile::kFormat, blocks * kBlock);
    const ConfiguredTiles<Unit> configured;
    UnitChunk<kPlanes> chunk;
    for (int64_t first = begin; first < end; first += kPanelTiles) {
      const int64_t count = end - first < kPanelTiles ? end - first : kPanelTiles;
      for (int t = 0; t < tokens; t += kUnitTokens) {
        const int group = tokens - t < kUnitTokens ? tokens - t : kUnitTokens;
        alignas(64) float sums[kPanelTiles][kUnitTokens][kTileRows] = {};
        for (int64_t b = 0; b < blocks; b += kChunkBlocks) {
          const int64_t some = blocks - b < kChunkBlocks ? blocks - b : kChunkBlocks;
          chunk.fill(x + t, group, b, some);
          for (int64_t i = 0; i < count; ++i) {
            const Tile tile{tiles + (first + i) * bytes};
            uint8_t* room = scratch + (i * blocks + b) * kSpreadBytes;
            if (t == 0) spread_signed(tile, b, some, room);
            add_chunk<Unit, kPlanes>(tile, b, some, room, chunk, sums[i]);
          }
        }
        for (int64_t i = 0; i < count; ++i) {
          for (int j = 0; j < group; ++j) emit(first + i, t + j, Ints::load(sums[i][j]));
        }
      }
    }
  }
};

// Whether the unit's products of random tiles have the bits of VNNI's.
template <typename Unit, int kPlanes, typename Tile>
bool unit_agrees() {
  constexpr int64_t kBlocks = kChunkBlocks + 3;
  constexpr int64_t kTiles = kPanelTiles + 1;
  constexpr int kTokens = kUnitTokens + 3;
  constexpr int64_t kBytes = Tile::kShape.bytes(kBlocks);
  alignas(64) uint8_t tiles[kTiles * kBytes];
  int8_t values[kTokens][kBlocks][kPlanes][kBlock];
  float scales[kTokens][kBlocks];
  int32_t begins[kTokens][kBlocks][kPlanes];
  uint64_t state = 1;
  const auto random_byte = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint8_t>(state >> 56);
  };
  for (uint8_t& byte : tiles) byte = random_byte();
  for (int64_t b = 0; b < kTiles * kBlocks; ++b) {  // a scale that is a number in either format
    uint8_t* at = tiles + b / kBlocks * kBytes + Tile::kShape.scales_at(b % kBlocks);
    __builtin_memset(at, 0x3C, Tile::kShape.scale_bytes);
  }
  RowView x[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    x[t] = {values[t][0][0], scales[t], begins[t][0]};
    for (int64_t b = 0; b < kBlocks; ++b) {
      scales[t][b] = 1.0f + static_cast<float>(random_byte()) / 256.0f;
      for (int p = 0; p < kPlanes; ++p) {
        int32_t sum = 0;
        for (int8_t& value : values[t][b][p]) {
          value = static_cast<int8_t>(random_byte());
          sum += value;
        }
        begins[t][b][p] = -Tile::kCode.offset * sum;
      }
    }
  }
  alignas(64) uint8_t scratch[kPanelTiles * kBlocks * kSpreadBytes];
  float sums[2][kTiles][kTokens][kTileRows];
  int way = 0;
  const auto emit = [&](int64_t tile, int t, L sum) { Ints::store(sums[way][tile][t], sum); };
  multiply_tiles<kPlanes, Tile>(tiles, 0, kTiles, kBlocks, x, kTokens, scratch, emit);
  way = 1;
  UnitProducts<Unit>::template multiply<kPlanes, Tile>(tiles, 0, kTiles, kBlocks, x, kTokens,
                                                       scratch, emit);
  return __builtin_memcmp(sums[0], sums[1], sizeof sums[0]) == 0;
}

// Null if the unit was tried and did not give the bits that it must.
template <typename Unit>
std::unique_ptr<TileKernels> make_unit_tiles(base::ThreadPool& pool) {
  if (!unit_agrees<Unit, 1, Int8Tile>() || !unit_agrees<Unit, 2, Int8Tile>() ||
      !unit_agrees<Unit, 1, Int4Tile>() || !unit_agrees<Unit, 2, Int4Tile>() ||
      !unit_agrees<Unit, 1, Mxfp4Tile>() || !unit_agrees<Unit, 2, Mxfp4Tile>()) {
    return nullptr;
  }
  return std::make_unique<Tiles<UnitProducts<Unit>>>(pool);
}
