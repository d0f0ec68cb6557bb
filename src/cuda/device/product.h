// Products of weights in tiles with rows of bf16 activations, on tensor cores, for any number of
// rows. Two configs with the same bits: for few rows one block reads whole rows of activations into
// shared memory and its eight warps take a slice of the columns each; for many rows a warp walks
// through all slices, and shared memory holds a few chunks at a time. What becomes of a result the
// epilogue says: it gets low and high row of a tile together.
#pragma once

#include "cuda/device/gpu.h"
#include "cuda/operations.h"

namespace pelton::cuda {

struct ProductArgs {
  Weights weights;
  const Bf16Bits* x;
  const Bf16Bits* low;
  const int32_t* live;      // rows, or tiles of `tiles`
  const ExpertTile* tiles;  // null: every row is a column, one after the other
  const int32_t* entries;
  int32_t rows_of_entry;     // the row of an entry is entry / this
  bool knows_tiles = false;  // before anything of the step may be touched
};

// The columns that a block computes.
struct ColumnTile {
  int expert;
  int first;
  int count;
};

PELTON_DEVICE ColumnTile column_tile(const ProductArgs& args, int index, int columns) {
  if (args.tiles != nullptr) {
    if (index >= *args.live) return {0, 0, 0};
    const ExpertTile tile = args.tiles[index];
    return {tile.expert, tile.first, tile.count};
  }
  const int first = index * columns;
  const int left = *args.live - first;
  return {0, first, left < 0 ? 0 : left < columns ? left : columns};
}

// The entry (grouped) or row that column `index` of the tile stands for.
PELTON_DEVICE int column_entry(const ProductArgs& args, const ColumnTile& tile, int index) {
  return args.tiles == nullptr ? tile.first + index : args.entries[tile.first + index];
}
PELTON_DEVICE int64_t column_row(const ProductArgs& args, const ColumnTile& tile, int index) {
  const int entry = column_entry(args, tile, index);
  return args.tiles == nullptr ? entry : entry / args.rows_of_entry;
}

// A lane's weights of one chunk of one tile, as they are stored.
template <WeightType kType>
struct Stored;

template <>
struct Stored<WeightType::kBf16> {
  Words4 words[4];
};
template <>
struct Stored<WeightType::kMxfp4> {
  Words4 words;
  uint32_t scales;
};

// index: (expert * tiles + tile) * chunks + chunk
PELTON_DEVICE void load_stored(Stored<WeightType::kBf16>& out, const Weights& weights,
                               int64_t index, int lane) {
  const Words4* from = static_cast<const Words4*>(weights.data) + index * (kBf16ChunkBytes / 16);
#pragma unroll
  for (int m = 0; m < 4; ++m) out.words[m] = load_weights(from + m * 32 + lane);
}
PELTON_DEVICE void load_stored(Stored<WeightType::kMxfp4>& out, const Weights& weights,
                               int64_t index, int lane) {
  const Words4* from = static_cast<const Words4*>(weights.data) + index * (kMxfp4ChunkBytes / 16);
  out.words = load_weights(from + lane);
  out.scales = load_weights(weights.scales + index * (kScaleChunkBytes / 4) + lane / 4);
}

// The left operand of product m of the chunk.
PELTON_DEVICE void operand(uint32_t (&a)[4], const Stored<WeightType::kBf16>& stored, int m) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = stored.words[m].word[i];
}

// Two E2M1 codes, in the upper four bits of each half of `codes`, as bf16 numbers 2^126 times too
// small: sign, then exponent and mantissa right below the exponent's lowest two bits (a code whose
// exponent is 0 becomes a subnormal, which is what it should be).
PELTON_DEVICE uint32_t small_bf16x2(uint32_t codes) {
  return (codes & 0x80008000u) | ((codes >> 6) & 0x01C001C0u);
}

// 2^(scale - 127 + 126), for small_bf16x2. Packing makes no scale above 128.
PELTON_DEVICE uint32_t scale_bf16x2(uint32_t scale) {
  const uint32_t bits = (scale + 126) << 7;
  return bits | bits << 16;
}

PELTON_DEVICE void operand(uint32_t (&a)[4], const Stored<WeightType::kMxfp4>& stored, int m) {
  const int half = m / 2;  // of the chunk
  const int shift = m % 2 == 0 ? 12 : 4;
  const uint32_t low = stored.words.word[half];
  const uint32_t high = stored.words.word[2 + half];
  const uint32_t low_scale = scale_bf16x2((stored.scales >> (8 * half)) & 0xFF);
  const uint32_t high_scale = scale_bf16x2((stored.scales >> (16 + 8 * half)) & 0xFF);
  a[0] = multiply_bf16x2(small_bf16x2(low << shift), low_scale);
  a[1] = multiply_bf16x2(small_bf16x2(high << shift), high_scale);
  a[2] = multiply_bf16x2(small_bf16x2(low << (shift - 4)), low_scale);
  a[3] = multiply_bf16x2(small_bf16x2(high << (shift - 4)), high_scale);
}

template <int kColumnTiles>
PELTON_DEVICE void clear(float (&sums)[kColumnTiles][4]) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
}

// sums += one chunk. right(n, half): of activation rows 8n to 8n + 7 and 32 columns, the address of
// 8 columns of a row as load_matrices wants it: row lane % 8, columns 8 (lane / 8).
template <WeightType kType, int kRowTiles, int kColumnTiles, class Right>
PELTON_DEVICE void add_chunk(float (&sums)[kRowTiles][kColumnTiles][4],
                             const Stored<kType> (&stored)[kRowTiles], const Right& right) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t first[kRowTiles][4];
    uint32_t second[kRowTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      operand(first[r], stored[r], 2 * half);
      operand(second[r], stored[r], 2 * half + 1);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const Words4 x = load_matrices(right(n, half));
      const uint32_t x_first[2] = {x.word[0], x.word[1]};
      const uint32_t x_second[2] = {x.word[2], x.word[3]};
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma(sums[r][n], first[r], x_first);
        mma(sums[r][n], second[r], x_second);
      }
    }
  }
}

// ---- few rows -------------------------------------------------------------------------------

inline constexpr int kSmallThreads = 32 * kSlices;

// Starts copying rows of `x` to `to`; columns beyond the tile's count stay as they are.
PELTON_DEVICE void stage_rows(unsigned char* to, const Bf16Bits* x, const ProductArgs& args,
                              const ColumnTile& tile, int chunks) {
  const int pieces = chunks * (kChunkColumns * 2 / 16);  // of 16 bytes in a row
  for (int i = thread_index(); i < tile.count * pieces; i += block_threads()) {
    const int column = i / pieces;
    const int piece = i % pieces;
    const Bf16Bits* from = x + column_row(args, tile, column) * chunks * kChunkColumns + piece * 8;
    copy_async(to + column * staged_row_bytes(chunks) + piece * 16, from, true);
  }
}

// The slices' sums of a block, one after the other: through `partials`, in shared memory.
template <int kRowTiles, int kColumnTiles, class Epilogue>
PELTON_DEVICE void add_slices(const float (&sums)[kRowTiles][kColumnTiles][4], float* partials,
                              const ProductArgs& args, int first_tile, const ColumnTile& columns,
                              const Epilogue& epilogue) {
  constexpr int kItems = kRowTiles * kColumnTiles * 32;
  const Weights& weights = args.weights;
  const int tiles = tile_count(weights.rows);
  const int lane = thread_index() % 32;
  const int slice = thread_index() / 32;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      float* to = partials + (slice * kItems + (r * kColumnTiles + n) * 32 + lane) * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = sums[r][n][i];
    }
  }
  sync_block();
  for (int item = thread_index(); item < kItems; item += kSmallThreads) {
    const int tile = first_tile + item / (32 * kColumnTiles);
    const int n = item / 32 % kColumnTiles;
    float total[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] = partials[item * 4 + i];
    for (int s = 1; s < kSlices; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[i] += partials[(s * kItems + item) * 4 + i];
    }
    if (tile >= tiles) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * n + 2 * (item % 4) + i;
      if (column >= columns.count) continue;
      epilogue(tile, item % 32 / 4, columns.expert, column_entry(args, columns, column),
               total[i] * weights.factor, total[2 + i] * weights.factor);
    }
  }
}

// The one block that a launched kernel's thread block computes: x counts row tiles, y columns.
struct OneBlock {
  int x;
  int y;
  bool is_valid = true;

  PELTON_DEVICE void advance() { is_valid = false; }
};

// How rows of activations come to shared memory.
enum class Rows {
  kCopied,  // by the product, for each of its blocks
  kThere,   // `ready` has put them to the beginning of `room`, as stage_rows would
};

// A thread block computes `blocks`, one after the other, with the first weights of each on their
// way while the one before it ends. `ready` is called once, when the first ones are on their way,
// where it is known by then which ones they are: nothing of the step may be touched before it
// returns. room: config_shared_bytes of shared memory. kAtOnce: chunks on their way from memory at
// a time.
template <WeightType kType, int kColumnTiles, int kRowTiles, bool kLow, Rows kRows, int kAtOnce,
          class Blocks, class Ready, class Epilogue>
PELTON_DEVICE void small_product_blocks(const ProductArgs& args, const Epilogue& epilogue,
                                        unsigned char* room, Blocks blocks, const Ready& ready) {
  const Weights& weights = args.weights;
  const int chunks = chunk_count(weights.columns);
  const int tiles = tile_count(weights.rows);
  const int lane = thread_index() % 32;
  const int slice = thread_index() / 32;
  const int begin = slice_begin(chunks, slice);
  const int end = slice_begin(chunks, slice + 1);
  // A tile beyond the last is computed as the last one once more, and dropped.
  Stored<kType> stored[kAtOnce][kRowTiles];
  const auto load_chunks = [&](int first_tile, int expert, int chunk) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const int tile = first_tile + r < tiles ? first_tile + r : tiles - 1;
        const int inside = chunk + i < end ? chunk + i : end - 1;
        load_stored(stored[i][r], weights, (int64_t{expert} * tiles + tile) * chunks + inside,
                    lane);
      }
    }
  };

  unsigned char* const staged = room;
  unsigned char* const staged_low = staged + 8 * kColumnTiles * staged_row_bytes(chunks);
  float* const partials = reinterpret_cast<float*>(
      staged_low + (kLow ? 8 * kColumnTiles * staged_row_bytes(chunks) : 0));

  const bool knows_expert = args.tiles == nullptr || args.knows_tiles;
  if (knows_expert && blocks.is_valid && begin < end) {
    load_chunks(blocks.x * kRowTiles, args.tiles == nullptr ? 0 : args.tiles[blocks.y].expert,
                begin);
  }
  ready();
  if (!blocks.is_valid) return;
  ColumnTile columns = column_tile(args, blocks.y, 8 * kColumnTiles);
  if (columns.count == 0) return;
  if (!knows_expert && begin < end) load_chunks(blocks.x * kRowTiles, columns.expert, begin);

#pragma unroll 1
  while (true) {
    const int first_tile = blocks.x * kRowTiles;
    if constexpr (kRows == Rows::kCopied) {
      stage_rows(staged, args.x, args, columns, chunks);
      if (kLow) stage_rows(staged_low, args.low, args, columns, chunks);
      commit_copies();
    }

    float sums[kRowTiles][kColumnTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) clear(sums[r]);

    if constexpr (kRows == Rows::kCopied) wait_copies<0>();
    sync_block();
    const int place = (lane % 8) * staged_row_bytes(chunks) + (lane / 8) * 16;
    for (int chunk = begin; chunk < end; chunk += kAtOnce) {
      if (chunk != begin) load_chunks(first_tile, columns.expert, chunk);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (chunk + i >= end) break;
        const auto right_of = [&](const unsigned char* from) {
          return [=](int n, int half) {
            return from + n * 8 * staged_row_bytes(chunks) + place + (chunk + i) * 128 + half * 64;
          };
        };
        add_chunk<kType>(sums, stored[i], right_of(staged));
        if (kLow) add_chunk<kType>(sums, stored[i], right_of(staged_low));
      }
    }

    const ColumnTile done = columns;
    blocks.advance();
    if (blocks.is_valid) {
      columns = column_tile(args, blocks.y, 8 * kColumnTiles);
      if (begin < end) load_chunks(blocks.x * kRowTiles, columns.expert, begin);
    }

    add_slices<kRowTiles, kColumnTiles>(sums, partials, args, first_tile, done, epilogue);
    if (!blocks.is_valid) return;
  }
}

// The first weights are on their way while the kernels before still run.
template <WeightType kType, int kColumnTiles, int kRowTiles, bool kLow, class Epilogue>
PELTON_KERNEL(kSmallThreads)
small_product(ProductArgs args, Epilogue epilogue) {
  launch_dependents();
  // Of MXFP4 more chunks, to be as many bytes.
  constexpr int kAtOnce = kType == WeightType::kMxfp4 ? 3 : 2;
  small_product_blocks<kType, kColumnTiles, kRowTiles, kLow, Rows::kCopied, kAtOnce>(
      args, epilogue, shared_memory<unsigned char>(), OneBlock{block_x(), block_y()},
      [] { wait_for_predecessors(); });
}

// ---- many rows ------------------------------------------------------------------------------

inline constexpr int kLargeRowWarps = 4;
inline constexpr int kLargeRowTiles = 2;     // of weights, for one warp
inline constexpr int kLargeColumnTiles = 8;  // 64 rows of activations, for one warp

constexpr int large_product_columns(int column_warps) {
  return column_warps * kLargeColumnTiles * 8;
}

// Where 8 columns of a row stand in a staged chunk: a row has 128 bytes, and its pieces of 16
// change places by the row's number, so that the eight rows of a matrix meet all banks.
PELTON_DEVICE int staged_place(int row, int piece) {
  return row * 128 + (piece ^ (row & 7)) * 16;
}

// Starts copying one chunk of the tile's rows.
template <int kColumnWarps>
PELTON_DEVICE void stage_chunk(unsigned char* to, const ProductArgs& args, const ColumnTile& tile,
                               int chunk, int chunks) {
  constexpr int kColumns = large_product_columns(kColumnWarps);
  for (int i = thread_index(); i < kColumns * 8; i += block_threads()) {
    const int column = i / 8;
    const int piece = i % 8;
    const bool valid = column < tile.count;
    const int64_t row = column_row(args, tile, valid ? column : 0);
    const Bf16Bits* from = args.x + (row * chunks + chunk) * kChunkColumns + piece * 8;
    copy_async(to + staged_place(column, piece), from, valid);
  }
}

template <WeightType kType, int kColumnWarps, class Epilogue>
PELTON_KERNEL(32 * kLargeRowWarps * kColumnWarps)
large_product(ProductArgs args, Epilogue epilogue) {
  constexpr int kColumns = large_product_columns(kColumnWarps);
  constexpr int kStageBytes = kColumns * kChunkColumns * 2;
  const Weights& weights = args.weights;
  const int chunks = chunk_count(weights.columns);
  const int tiles = tile_count(weights.rows);
  const int lane = thread_index() % 32;
  const int warp = thread_index() / 32;
  const int first_tile = (block_x() * kLargeRowWarps + warp % kLargeRowWarps) * kLargeRowTiles;
  const int first_column = warp / kLargeRowWarps * kLargeColumnTiles * 8;
  Stored<kType> stored[kLargeRowTiles];
  const auto load_chunk = [&](int expert, int chunk) {
#pragma unroll
    for (int r = 0; r < kLargeRowTiles; ++r) {
      const int tile = first_tile + r < tiles ? first_tile + r : tiles - 1;
      load_stored(stored[r], weights, (int64_t{expert} * tiles + tile) * chunks + chunk, lane);
    }
  };

  const bool knows_expert = args.tiles == nullptr;  // as in small_product
  launch_dependents();
  if (knows_expert) load_chunk(0, 0);
  wait_for_predecessors();
  const ColumnTile columns = column_tile(args, block_y(), kColumns);
  if (columns.count == 0) return;
  if (!knows_expert) load_chunk(columns.expert, 0);
  unsigned char* const staged = shared_memory<unsigned char>();

#pragma unroll
  for (int stage = 0; stage < kLargeStages - 1; ++stage) {
    if (stage < chunks) {
      stage_chunk<kColumnWarps>(staged + stage * kStageBytes, args, columns, stage, chunks);
    }
    commit_copies();
  }
  float totals[kLargeRowTiles][kLargeColumnTiles][4];
  for (int slice = 0; slice < kSlices; ++slice) {
    float sums[kLargeRowTiles][kLargeColumnTiles][4];
#pragma unroll
    for (int r = 0; r < kLargeRowTiles; ++r) clear(sums[r]);
    const int end = slice_begin(chunks, slice + 1);
    for (int chunk = slice_begin(chunks, slice); chunk < end; ++chunk) {
      wait_copies<kLargeStages - 2>();
      sync_block();
      // The stage that the chunk before was in is free now.
      const int ahead = chunk + kLargeStages - 1;
      if (ahead < chunks) {
        stage_chunk<kColumnWarps>(staged + ahead % kLargeStages * kStageBytes, args, columns, ahead,
                                  chunks);
      }
      commit_copies();
      Stored<kType> now[kLargeRowTiles];
#pragma unroll
      for (int r = 0; r < kLargeRowTiles; ++r) now[r] = stored[r];
      load_chunk(columns.expert, chunk + 1 < chunks ? chunk + 1 : chunk);
      const unsigned char* const from = staged + chunk % kLargeStages * kStageBytes;
      const auto right = [=](int n, int half) {
        return from + staged_place(first_column + 8 * n + lane % 8, 4 * half + lane / 8);
      };
      add_chunk<kType>(sums, now, right);
    }
#pragma unroll
    for (int r = 0; r < kLargeRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kLargeColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[r][n][i] = slice == 0 ? sums[r][n][i] : totals[r][n][i] + sums[r][n][i];
        }
      }
    }
  }
  wait_copies<0>();

#pragma unroll
  for (int r = 0; r < kLargeRowTiles; ++r) {
    if (first_tile + r >= tiles) continue;
#pragma unroll
    for (int n = 0; n < kLargeColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = first_column + 8 * n + 2 * (lane % 4) + i;
        if (column >= columns.count) continue;
        epilogue(first_tile + r, lane / 4, columns.expert, column_entry(args, columns, column),
                 totals[r][n][i] * weights.factor, totals[r][n][2 + i] * weights.factor);
      }
    }
  }
}

}  // namespace pelton::cuda
