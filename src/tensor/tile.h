// Where things stand in a tile: 16 rows of a matrix, interleaved as the fast kernels read them
// (kernels/tiles.h). Blocks of 32 columns follow one another; a cache line in front of every few of
// them holds their scales, [blocks][16 rows]. So a tile, and a matrix of tiles, is read from its
// beginning to its end, as memory and prefetchers like it. All is whole cache lines. Pure.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace pelton::tensor {

struct TileShape {
  int64_t block_bytes;  // of the weights of a block
  int64_t scale_bytes;  // of its 16 scales; one, or several in a line

  static constexpr int64_t kLineBytes = 64;

  constexpr int64_t blocks_of_line() const { return kLineBytes / scale_bytes; }
  constexpr int64_t group_bytes() const { return kLineBytes + blocks_of_line() * block_bytes; }
  constexpr int64_t scales_at(int64_t block) const {
    return block / blocks_of_line() * group_bytes() + block % blocks_of_line() * scale_bytes;
  }
  constexpr int64_t weights_at(int64_t block) const {
    return block / blocks_of_line() * group_bytes() + kLineBytes +
           block % blocks_of_line() * block_bytes;
  }
  // Of a tile of so many blocks.
  constexpr int64_t bytes(int64_t blocks) const {
    return (blocks + blocks_of_line() - 1) / blocks_of_line() * kLineBytes + blocks * block_bytes;
  }
};

inline constexpr TileShape kInt8TileShape{kTileRows * kBlockElements, 2 * kTileRows};
inline constexpr TileShape kInt4TileShape{kTileRows * kBlockElements / 2, 2 * kTileRows};
inline constexpr TileShape kMxfp4TileShape{kTileRows * kBlockElements / 2, kTileRows};

constexpr TileShape tile_shape(DType dtype) {
  switch (dtype) {
    case DType::kInt8Tiles:
      return kInt8TileShape;
    case DType::kInt4Tiles:
      return kInt4TileShape;
    default:
      return kMxfp4TileShape;
  }
}

}  // namespace pelton::tensor
