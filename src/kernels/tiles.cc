#include "kernels/tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/bits.h"
#include "tensor/dtype.h"

namespace pelton::kernels {
namespace {

constexpr int kBlock = tensor::kBlockElements;

int64_t weight_bytes_of_block(Format format) {
  return format == Format::kInt8Tiles ? kTileRows * kBlock : kTileRows * kBlock / 2;
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
  uint8_t* scales = tile + blocks * weight_bytes_of_block(Format::kInt8Tiles);
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
      std::memcpy(scales + (b * kTileRows + r) * 2, &row.scales[b], 2);
      for (int i = 0; i < kBlock; ++i) {
        tile[b * kTileRows * kBlock + i / 4 * 64 + r * 4 + i % 4] =
            static_cast<uint8_t>(row.values[b * kBlock + i] + 128);
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

void pack_mxfp4(const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile) {
  const int64_t blocks = from.cols / kBlock;
  const int64_t block_bytes = weight_bytes_of_block(Format::kMxfp4Tiles);
  uint8_t* scales = tile + blocks * block_bytes;
  for (int r = 0; r < kTileRows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      Mxfp4Block block{};
      if (rows[r] >= 0) block = take_mxfp4(from, rows[r], b);
      scales[b * kTileRows + r] = block.scale;
      for (int i = 0; i < 16; ++i) {
        const int low = i / 4 * 8 + i % 4;
        tile[b * block_bytes + i / 4 * 64 + r * 4 + i % 4] =
            static_cast<uint8_t>(block.codes[low] | block.codes[low + 4] << 4);
      }
    }
  }
}

}  // namespace

bool is_tiled(Format format) {
  return format == Format::kInt8Tiles || format == Format::kMxfp4Tiles;
}

int64_t tile_bytes(Format format, int64_t cols) {
  CHECK(is_tiled(format));
  return tensor::tile_bytes(format == Format::kInt8Tiles ? tensor::DType::kInt8Tiles
                                                         : tensor::DType::kMxfp4Tiles,
                            cols);
}

int64_t tiled_bytes(Format format, int64_t rows, int64_t cols) {
  return (rows + kTileRows - 1) / kTileRows * tile_bytes(format, cols);
}

void pack_tile(Format to, const StoredMatrix& from, const int64_t rows[kTileRows], uint8_t* tile) {
  std::memset(tile, 0, static_cast<size_t>(tile_bytes(to, from.cols)));
  if (to == Format::kInt8Tiles) return pack_int8(from, rows, tile);
  CHECK(from.format == Format::kMxfp4Pairs || from.format == Format::kMxfp4Blocks);
  pack_mxfp4(from, rows, tile);
}

void read_tiled_row(Format format, const uint8_t* tiles, int64_t row, int64_t cols, float* out) {
  const uint8_t* tile = tiles + row / kTileRows * tile_bytes(format, cols);
  const int64_t r = row % kTileRows;
  const int64_t blocks = cols / kBlock;
  const int64_t block_bytes = weight_bytes_of_block(format);
  const uint8_t* scales = tile + blocks * block_bytes;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* weights = tile + b * block_bytes + r * 4;
    float* to = out + b * kBlock;
    if (format == Format::kInt8Tiles) {
      uint16_t bits;
      std::memcpy(&bits, scales + (b * kTileRows + r) * 2, 2);
      const float scale = tensor::f16_to_float(bits);
      for (int i = 0; i < kBlock; ++i) {
        to[i] = scale * static_cast<float>(int{weights[i / 4 * 64 + i % 4]} - 128);
      }
    } else {
      const float scale = tensor::e8m0_to_float(scales[b * kTileRows + r]);
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
