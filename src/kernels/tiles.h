// Weights in the order in which the fast kernels read them: tiles of 16 rows, interleaved so that a
// vector's 32-bit lanes are rows and one instruction multiplies four columns of each. A matrix of
// any number of rows is ceil(rows / 16) tiles one after the other; rows beyond the last are zero.
// Pure layout, no arithmetic; any thread.
//
// A tile is blocks of 32 columns, one after the other, with their scales in front of every few of
// them (tensor/tile.h).
//   kInt8Tiles   a block is 8 groups of 64 bytes: byte 4r + i of group g is 128 + the signed byte
//                of row r, column 4g + i. Scales: float16. Element = scale * signed byte.
//   kMxfp4Tiles  a block is 4 groups of 64 bytes: byte 4r + i of group g holds the E2M1 codes of
//                row r, columns 8g + i (low nibble) and 8g + 4 + i (high). Scales: E8M0 bytes.
//   kInt4Tiles   as kMxfp4Tiles, but a nibble is 8 + a number from -8 to 7. Scales: float16, of
//                either sign. Element = scale * number.
//
// Row 21, column 38 of a matrix (22, 64): row 5 of the second of two tiles, whose rows 6 to 15
// are zero; column 6 of block 1.
//   kInt8Tiles   a tile is a line with the scales of both blocks and 2 * 512 bytes of them, 1088 in
//                all. The scale is element 5 of block 1's: byte 32 + 2 * 5 = 42. The number, say 3,
//                stands in group 6 / 4 = 1, byte 4 * 5 + 6 % 4 = 22 of it, as 131:
//                64 + 512 + 64 + 22 = 662 of the tile.
//   kMxfp4Tiles  a line with the scales of up to four blocks and 2 * 256 bytes, 576 in all. Group
//                6 / 8 = 0 of block 1, and 6 = 4 + 2: the high nibble of byte 4 * 5 + 2 = 22, which
//                is 64 + 256 + 22 = 342 of the tile.
#pragma once

#include <cstdint>

#include "kernels/weight_row.h"
#include "tensor/dtype.h"

namespace pelton::kernels {

using tensor::kTileRows;

bool is_tiled(Format format);
int64_t tile_bytes(Format format, int64_t cols);  // tensor::tile_bytes
// Of the whole matrix.
int64_t tiled_bytes(Format format, int64_t rows, int64_t cols);

// Writes one tile: its row r is row rows[r] of `from`, or zero where rows[r] < 0.
//   kMxfp4Tiles  `from` is MXFP4 in either order; exact.
//   kInt8Tiles   `from` is kQ8_0 (exact), or kF32, kF16, kBf16: rounded to nearest with the scale
//                largest magnitude / 127, itself a float16 rounded up
//   kInt4Tiles   `from` is kF32, kF16, kBf16 or kQ8_0: with the scale, of some that are tried, that
//                leaves the least squared error
void pack_tile(Format to, const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile);

// out: float (cols) = row `row` of a tiled matrix.
void read_tiled_row(Format format, const uint8_t* tiles, int64_t row, int64_t cols, float* out);

}  // namespace pelton::kernels
