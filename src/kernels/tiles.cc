#include "kernels/tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "tensor/bits.h"
#include "tensor/dtype.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

using tensor::DType;
using tensor::kInt4TileShape;
using tensor::kInt8TileShape;
using tensor::kMxfp4TileShape;

constexpr int kBlock = tensor::kBlockElements;

DType dtype_of(Format format) {
  switch (format) {
    case Format::kInt8Tiles:
      return DType::kInt8Tiles;
    case Format::kInt4Tiles:
      return DType::kInt4Tiles;
    default:
      return DType::kMxfp4Tiles;
  }
}

// One row of signed bytes and their float16 scales.
struct Int8Row {
  std::vector<int8_t> values;
  std::vector<uint16_t> scales;
};

// The smallest float16 that is not below `value`.
uint16_t f16_up(float value) {
  const uint16_t bits = tensor::float_to_f16(value);
  return tensor::f16_to_float(bits) < value ? static_cast<uint16_t>(bits + 1) : bits;
}

void take_q8_0(const uint8_t* from, int64_t cols, Int8Row& row) {
  for (int64_t b = 0; b < cols / kBlock; ++b, from += tensor::kQ8_0BlockBytes) {
    std::memcpy(&row.scales[b], from, 2);
    std::memcpy(&row.values[b * kBlock], from + 2, kBlock);
  }
}

void quantize_row(const float* from, int64_t cols, Int8Row& row) {
  for (int64_t b = 0; b < cols / kBlock; ++b) {
    float largest = 0;
    for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(from[b * kBlock + i]));
    row.scales[b] = f16_up(largest / 127.0f);
    const float scale = tensor::f16_to_float(row.scales[b]);
    for (int i = 0; i < kBlock; ++i) {
      const float value = scale > 0 ? std::nearbyint(from[b * kBlock + i] / scale) : 0.0f;
      row.values[b * kBlock + i] = static_cast<int8_t>(std::clamp(value, -127.0f, 127.0f));
    }
  }
}

void pack_int8(const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile) {
  const int64_t blocks = from.cols / kBlock;
  Int8Row row{std::vector<int8_t>(from.cols), std::vector<uint16_t>(blocks)};
  std::vector<float> wide(from.cols);
  for (int r = 0; r < kTileRows; ++r) {
    if (rows[r] < 0) {
      std::fill(row.values.begin(), row.values.end(), int8_t{0});
      std::fill(row.scales.begin(), row.scales.end(), uint16_t{0});
    } else if (from.format == Format::kQ8_0) {
      const auto* bytes = static_cast<const uint8_t*>(from.data);
      take_q8_0(bytes + rows[r] * row_bytes(from.format, from.cols), from.cols, row);
    } else {
      read_weight_row(from, rows[r], wide.data());
      quantize_row(wide.data(), from.cols, row);
    }
    for (int64_t b = 0; b < blocks; ++b) {
      std::memcpy(tile + kInt8TileShape.scales_at(b) + r * 2, &row.scales[b], 2);
      for (int i = 0; i < kBlock; ++i) {
        tile[kInt8TileShape.weights_at(b) + i / 4 * 64 + r * 4 + i % 4] =
            static_cast<uint8_t>(row.values[b * kBlock + i] + 128);
      }
    }
  }
}

// 32 numbers from -8 to 7, and what one of them stands for.
struct Int4Block {
  std::array<int8_t, kBlock> numbers{};
  uint16_t scale = 0;
};

// With a scale, of whichever sign, that brings the largest magnitude to -8 or somewhat beyond: what
// is cut off there can cost less than coarser steps for all the others. Of one -8 and 31 times 0.6,
// the scale 1 gives -8 and 1: squared errors of 31 * 0.16 = 4.96; with 0.87 they are -6.96 and
// 0.87, 1.08 + 31 * 0.073 = 3.34, the least of the five.
Int4Block quantize_int4(const float* from) {
  float extreme = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(from[i]) > std::fabs(extreme)) extreme = from[i];
  }
  Int4Block best;
  float least = std::numeric_limits<float>::infinity();
  for (const float share : {1.0f, 0.93f, 0.87f, 0.8f, 0.73f}) {
    Int4Block block;
    block.scale = tensor::float_to_f16(share * extreme / -8.0f);
    const float scale = tensor::f16_to_float(block.scale);
    if (scale == 0 || !std::isfinite(scale)) break;
    float error = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float number = std::clamp(std::nearbyint(from[i] / scale), -8.0f, 7.0f);
      block.numbers[i] = static_cast<int8_t>(number);
      const float off = from[i] - scale * number;
      error += off * off;
    }
    if (error < least) {
      least = error;
      best = block;
    }
  }
  return best;
}

void pack_int4(const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile) {
  const int64_t blocks = from.cols / kBlock;
  std::vector<float> wide(from.cols);
  for (int r = 0; r < kTileRows; ++r) {
    if (rows[r] >= 0) read_weight_row(from, rows[r], wide.data());
    for (int64_t b = 0; b < blocks; ++b) {
      Int4Block block;
      if (rows[r] >= 0) block = quantize_int4(wide.data() + b * kBlock);
      std::memcpy(tile + kInt4TileShape.scales_at(b) + r * 2, &block.scale, 2);
      for (int i = 0; i < 16; ++i) {
        const int low = i / 4 * 8 + i % 4;
        tile[kInt4TileShape.weights_at(b) + i / 4 * 64 + r * 4 + i % 4] =
            static_cast<uint8_t>((block.numbers[low] + 8) | (block.numbers[low + 4] + 8) << 4);
      }
    }
  }
}

// The E2M1 code of element i of a block, and its scale.
struct Mxfp4Block {
  std::array<uint8_t, kBlock> codes;
  uint8_t scale;
};

Mxfp4Block take_mxfp4(const StoredMatrix& from, int64_t row, int64_t block) {
  Mxfp4Block out;
  const auto* bytes = static_cast<const uint8_t*>(from.data);
  const int64_t index = row * (from.cols / kBlock) + block;
  if (from.format == Format::kMxfp4Pairs) {
    const uint8_t* at = bytes + index * 16;
    for (int b = 0; b < 16; ++b) {
      out.codes[2 * b] = at[b] & 15;
      out.codes[2 * b + 1] = at[b] >> 4;
    }
    out.scale = from.scales[index];
  } else {
    const uint8_t* at = bytes + index * tensor::kMxfp4BlockBytes;
    for (int b = 0; b < 16; ++b) {
      out.codes[b] = at[1 + b] & 15;
      out.codes[16 + b] = at[1 + b] >> 4;
    }
    out.scale = at[0];
  }
  return out;
}

// Row 5, column 6 of a block, say 3, whose code is 5: group 6 / 8 = 0, byte 4 * 5 + 6 % 4 = 22 of
// it, in the high nibble, for 6 % 8 is not below 4; column 2 is in the low one.
void pack_mxfp4(const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile) {
  const int64_t blocks = from.cols / kBlock;
  for (int r = 0; r < kTileRows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      Mxfp4Block block{};
      if (rows[r] >= 0) block = take_mxfp4(from, rows[r], b);
      tile[kMxfp4TileShape.scales_at(b) + r] = block.scale;
      for (int i = 0; i < 16; ++i) {
        const int low = i / 4 * 8 + i % 4;
        tile[kMxfp4TileShape.weights_at(b) + i / 4 * 64 + r * 4 + i % 4] =
            static_cast<uint8_t>(block.codes[low] | block.codes[low + 4] << 4);
      }
    }
  }
}

}  // namespace

bool is_tiled(Format format) {
  return format == Format::kInt8Tiles || format == Format::kMxfp4Tiles ||
         format == Format::kInt4Tiles;
}

int64_t tile_bytes(Format format, int64_t cols) {
  CHECK(is_tiled(format));
  return tensor::tile_bytes(dtype_of(format), cols);
}

int64_t tiled_bytes(Format format, int64_t rows, int64_t cols) {
  return (rows + kTileRows - 1) / kTileRows * tile_bytes(format, cols);
}

void pack_tile(Format to, const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile) {
  std::memset(tile, 0, static_cast<size_t>(tile_bytes(to, from.cols)));
  if (to == Format::kInt8Tiles) return pack_int8(from, rows, tile);
  if (to == Format::kInt4Tiles) return pack_int4(from, rows, tile);
  CHECK(from.format == Format::kMxfp4Pairs || from.format == Format::kMxfp4Blocks);
  pack_mxfp4(from, rows, tile);
}

void read_tiled_row(Format format, const uint8_t* tiles, int64_t row, int64_t cols, float* out) {
  const uint8_t* tile = tiles + row / kTileRows * tile_bytes(format, cols);
  const int64_t r = row % kTileRows;
  const int64_t blocks = cols / kBlock;
  const tensor::TileShape shape = tensor::tile_shape(dtype_of(format));
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* weights = tile + shape.weights_at(b) + r * 4;
    const uint8_t* scales = tile + shape.scales_at(b);
    float* to = out + b * kBlock;
    if (format != Format::kMxfp4Tiles) {
      uint16_t bits;
      std::memcpy(&bits, scales + r * 2, 2);
      const float scale = tensor::f16_to_float(bits);
      if (format == Format::kInt4Tiles) {
        for (int i = 0; i < 16; ++i) {
          const uint8_t byte = weights[i / 4 * 64 + i % 4];
          const int low = i / 4 * 8 + i % 4;
          to[low] = scale * static_cast<float>(int{byte & 15} - 8);
          to[low + 4] = scale * static_cast<float>(int{byte >> 4} - 8);
        }
        continue;
      }
      for (int i = 0; i < kBlock; ++i) {
        to[i] = scale * static_cast<float>(int{weights[i / 4 * 64 + i % 4]} - 128);
      }
    } else {
      const float scale = tensor::e8m0_to_float(scales[r]);
      for (int i = 0; i < 16; ++i) {
        const uint8_t byte = weights[i / 4 * 64 + i % 4];
        const int low = i / 4 * 8 + i % 4;
        to[low] = scale * tensor::kFp4Values[byte & 15];
        to[low + 4] = scale * tensor::kFp4Values[byte >> 4];
      }
    }
  }
}

}  // namespace pelton::kernels
