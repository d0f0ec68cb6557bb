// Where a matrix's weights stand in a device's memory: in the order in which lanes of a warp hold
// the left operand of mma.sync m16n8k16, so that a warp reads 512 bytes in one go and needs no
// shared memory for them. Shared by packing (host) and kernels (device). Pure.
//
// A tile is 16 rows; along the columns it is cut into chunks of 64 (the last one filled up with
// zeros). Lane l of a warp has g = l / 4 and t = l % 4: rows g ("low") and g + 8 ("high") of the
// tile, and of every 8 columns those two from 2t on.
//
// Of chunk c: product m (0..3) takes columns 64c + 16m + {2t, 2t + 1, 2t + 8, 2t + 9}: the places
// that the instruction has for them. So the right operand is rows of activations as they are.
//   bf16:  [m][lane]: 16 bytes, a[0..3] of the instruction: low {0,1}, high {0,1}, low {2,3},
//          high {2,3} of those four
//   MXFP4: [lane]: four words: low of products 0 and 1, low of 2 and 3, high, high; in a word the
//          even columns' codes in the lower half and the odd ones' in the upper. Apart, in
//          [tile][chunk] order, [g]: four E8M0 scales in the order of the words.
//
// Sums: the chunks are divided among 8 slices; a slice is added chunk by chunk, and then the slices
// one after the other. This order is the same for every kernel, so a row's result does not depend
// on who computed it (docs/decisions/0004).
#pragma once

#include <cstdint>

namespace pelton::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kChunkColumns = 64;
inline constexpr int kSlices = 8;

inline constexpr int kBf16ChunkBytes = kTileRows * kChunkColumns * 2;
inline constexpr int kMxfp4ChunkBytes = kTileRows * kChunkColumns / 2;
inline constexpr int kScaleChunkBytes = kTileRows * kChunkColumns / 32;

enum class WeightType : int32_t { kBf16, kMxfp4 };

// Which rows of the matrix are low and high row g of a tile.
enum class RowOrder : int32_t {
  kPlain,   // 16 tile + g, and that + 8
  kHeads,   // pairs that rotary embedding turns: i and i + head_size / 2 of one head
  kGateUp,  // row 8 tile + g of gate, and the same of up
};

constexpr int tile_count(int rows) {
  return (rows + kTileRows - 1) / kTileRows;
}
constexpr int chunk_count(int columns) {
  return (columns + kChunkColumns - 1) / kChunkColumns;
}
constexpr int padded_columns(int columns) {
  return chunk_count(columns) * kChunkColumns;
}
constexpr int slice_begin(int chunks, int slice) {
  return chunks * slice / kSlices;
}
constexpr int chunk_bytes(WeightType type) {
  return type == WeightType::kBf16 ? kBf16ChunkBytes : kMxfp4ChunkBytes;
}

}  // namespace pelton::cuda
