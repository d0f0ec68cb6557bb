// The product for prompts on GPUs that have wgmma (sm_90a): beside the configs of product.h, with
// the same bits. A warpgroup computes 64 rows of weights, its warp w tile w of four: the left
// operand of wgmma lies in registers as mma.sync's does, and so do weights in memory
// (weight_tiles.h). The right operand is a chunk of the block's rows of activations in shared
// memory.
//
// Products run beside the threads: while those of a chunk are under way a warp makes the weights of
// the next ready. As every config does it adds a slice's chunks to zero, and the slices to each
// other.
#pragma once

#include "cuda/device/product.h"

namespace pelton::cuda {

inline constexpr int kWideGroups = 2;  // warpgroups of a block
inline constexpr int kWideThreads = 128 * kWideGroups;
inline constexpr int kWideRowTiles = 4 * kWideGroups;
inline constexpr int kChunkProducts = kChunkColumns / 16;
// Chunks of weights in registers, on their way or in use: of MXFP4 20 of these, of bf16 48, which
// products read as they are.
template <WeightType kType>
inline constexpr int kWideChunks = kType == WeightType::kMxfp4 ? 4 : 3;

// Of the tile's rows those that a thread copies a piece of: 16 bytes of every chunk.
template <int kColumns>
struct CopiedRows {
  static constexpr int kCount = kColumns * 8 / kWideThreads;
  int row[kCount];  // below 0: none
};

template <int kColumns>
PELTON_DEVICE CopiedRows<kColumns> copied_rows(const ProductArgs& args, const ColumnTile& tile) {
  CopiedRows<kColumns> out;
#pragma unroll
  for (int i = 0; i < out.kCount; ++i) {
    const int column = thread_index() / 8 + i * (kWideThreads / 8);
    out.row[i] = column < tile.count ? static_cast<int>(column_row(args, tile, column)) : -1;
  }
  return out;
}

// Starts copying a chunk; what lies beyond the tile's rows becomes zero.
template <int kColumns>
PELTON_DEVICE void copy_chunk(unsigned char* to, const Bf16Bits* x,
                              const CopiedRows<kColumns>& rows, int chunk, int chunks) {
  const int piece = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < rows.kCount; ++i) {
    const int column = thread_index() / 8 + i * (kWideThreads / 8);
    const int64_t row = rows.row[i] < 0 ? 0 : rows.row[i];
    copy_async(to + staged_place(column, piece),
               x + (row * chunks + chunk) * kChunkColumns + piece * 8, rows.row[i] >= 0);
  }
}

// The sums of the slice that is being added, and of those before it.
template <int kColumnTiles>
struct SlicedSums {
  float sums[kColumnTiles][4];
  float totals[kColumnTiles][4];
  int slice = 0;

  // The slices that end before this chunk are whole: no product may be under way.
  PELTON_DEVICE void fold(int chunk, int chunks) {
    while (slice < kSlices && slice_begin(chunks, slice + 1) <= chunk) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[n][i] = slice == 0 ? sums[n][i] : totals[n][i] + sums[n][i];
        }
      }
      clear(sums);
      ++slice;
    }
  }
};

// sums += one chunk, beside the threads; the chunk before is done with after it. right: the chunk's
// rows of activations. The registers of left operands stay as they are while products read them.
//
// The order of waits, writes to registers and fences is one that ptxas takes as it stands; of
// others it says C7513 and lets each product end before the next begins.

// bf16 weights are read where they were loaded to.
template <int kColumnTiles>
PELTON_DEVICE void multiply_chunk(float (&sums)[kColumnTiles][4],
                                  const Stored<WeightType::kBf16>& stored,
                                  uint32_t (&)[kChunkProducts][4], uint64_t right) {
  fence_products();
#pragma unroll
  for (int m = 0; m < kChunkProducts; ++m) {
    multiply_async(sums, stored.words[m].word, matrix_columns(right, m));
  }
  commit_products();
  wait_products<1>();
}

// MXFP4 ones are made bf16 in `turned`, while the chunk's products before them are under way.
template <int kColumnTiles>
PELTON_DEVICE void multiply_chunk(float (&sums)[kColumnTiles][4],
                                  const Stored<WeightType::kMxfp4>& stored,
                                  uint32_t (&turned)[kChunkProducts][4], uint64_t right) {
#pragma unroll
  for (int m = 0; m < kChunkProducts; ++m) {
    wait_products<kChunkProducts - 1>();  // product m of the chunk before, which read turned[m]
    operand(turned[m], stored, m);
    fence_products();
    multiply_async(sums, turned[m], matrix_columns(right, m));
    commit_products();
  }
}

// A warp's weights of the chunks to come.
template <WeightType kType>
struct ComingWeights {
  static constexpr int kPlaces = kWideChunks<kType>;
  const Weights& weights;
  int tile;
  Stored<kType> stored[kPlaces];

  PELTON_DEVICE void load(int place, int expert, int chunk) {
    const int tiles = tile_count(weights.rows);
    const int chunks = chunk_count(weights.columns);
    const int inside = chunk < chunks ? chunk : chunks - 1;
    load_stored(stored[place], weights, (int64_t{expert} * tiles + tile) * chunks + inside,
                thread_index() % 32);
  }
  PELTON_DEVICE void load_first(int expert) {
#pragma unroll
    for (int i = 0; i < kPlaces - 1; ++i) load(i, expert, i);
  }
};

// The tile's chunks, one after the other, through stages of shared memory.
template <WeightType kType, int kColumnTiles>
PELTON_DEVICE void add_chunks(SlicedSums<kColumnTiles>& result, ComingWeights<kType>& coming,
                              const ProductArgs& args, const ColumnTile& columns) {
  constexpr int kColumns = 8 * kColumnTiles;
  constexpr int kPlaces = kWideChunks<kType>;
  constexpr int kStageBytes = kColumns * kChunkColumns * 2;
  constexpr int kStagesAhead = kWideStages - 2;  // two chunks are in use
  const int chunks = chunk_count(args.weights.columns);
  unsigned char* const staged = shared_memory<unsigned char>();
  const CopiedRows<kColumns> rows = copied_rows<kColumns>(args, columns);
#pragma unroll
  for (int chunk = 0; chunk < kStagesAhead; ++chunk) {
    if (chunk < chunks) copy_chunk(staged + chunk * kStageBytes, args.x, rows, chunk, chunks);
    commit_copies();
  }
  uint32_t turned[kChunkProducts][4];
  int stage = 0;
  int next_stage = kStagesAhead;
  for (int first = 0; first < chunks; first += kPlaces) {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int chunk = first + i;
      if (chunk >= chunks) break;
      if (slice_begin(chunks, result.slice + 1) <= chunk) {
        finish_products(result.sums);
        result.fold(chunk, chunks);
      }
      wait_copies<kStagesAhead - 1>();
      publish_copies();
      sync_block();
      // All have begun this chunk, so they are done with the one two before it.
      if (chunk + kStagesAhead < chunks) {
        copy_chunk(staged + next_stage * kStageBytes, args.x, rows, chunk + kStagesAhead, chunks);
      }
      commit_copies();
      multiply_chunk(result.sums, coming.stored[i], turned,
                     matrix_at(staged + stage * kStageBytes));
      // Into the registers of the chunk before.
      coming.load((i + kPlaces - 1) % kPlaces, columns.expert, chunk + kPlaces - 1);
      stage = stage + 1 < kWideStages ? stage + 1 : 0;
      next_stage = next_stage + 1 < kWideStages ? next_stage + 1 : 0;
    }
  }
  finish_products(result.sums);
  result.fold(chunks, chunks);
  wait_copies<0>();
}

template <WeightType kType, int kColumnTiles, class Epilogue>
PELTON_DEVICE void compute_wide(const ProductArgs& args, const Epilogue& epilogue) {
  const int tiles = tile_count(args.weights.rows);
  const int lane = thread_index() % 32;
  const int tile = block_x() * kWideRowTiles + thread_index() / 32;
  // A tile beyond the last is computed as the last one once more, and dropped.
  ComingWeights<kType> coming{args.weights, tile < tiles ? tile : tiles - 1};

  const bool knows_expert = args.tiles == nullptr;  // as in small_product_blocks
  launch_dependents();
  if (knows_expert) coming.load_first(0);
  wait_for_predecessors();
  const ColumnTile columns = column_tile(args, block_y(), 8 * kColumnTiles);
  if (columns.count == 0) return;
  if (!knows_expert) coming.load_first(columns.expert);

  SlicedSums<kColumnTiles> result;
  clear(result.sums);
  add_chunks(result, coming, args, columns);

  if (tile >= tiles) return;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * n + 2 * (lane % 4) + i;
      if (column >= columns.count) continue;
      epilogue(tile, lane / 4, columns.expert, column_entry(args, columns, column),
               result.totals[n][i] * args.weights.factor,
               result.totals[n][2 + i] * args.weights.factor);
    }
  }
}

// For a GPU without wgmma nothing: no table names this config there.
template <WeightType kType, int kColumnTiles, class Epilogue>
PELTON_KERNEL(kWideThreads)
wide_product(ProductArgs args, Epilogue epilogue) {
  if constexpr (kHasAsyncProducts) compute_wide<kType, kColumnTiles>(args, epilogue);
}

}  // namespace pelton::cuda
