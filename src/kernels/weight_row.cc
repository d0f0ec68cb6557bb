#include "kernels/weight_row.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/tiles.h"
#include "tensor/bits.h"
#include "tensor/compact_bf16.h"
#include "tensor/dtype.h"

namespace pelton::kernels {
namespace {

using tensor::bf16_to_float;
using tensor::kFp4Values;

void read_q8_0(const uint8_t* from, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; i += tensor::kBlockElements, from += tensor::kQ8_0BlockBytes) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    const float scale = tensor::f16_to_float(bits);
    for (int64_t j = 0; j < tensor::kBlockElements; ++j) {
      out[i + j] = scale * static_cast<float>(static_cast<int8_t>(from[2 + j]));
    }
  }
}

// The two orders of MXFP4, elements 5 and 21 of a block: here the low and the high nibble of byte 5
// behind the scale; in pairs the high nibbles of bytes 2 and 10.
void read_mxfp4_blocks(const uint8_t* from, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; i += tensor::kBlockElements, from += tensor::kMxfp4BlockBytes) {
    const float scale = tensor::e8m0_to_float(from[0]);
    for (int64_t j = 0; j < 16; ++j) {
      out[i + j] = scale * kFp4Values[from[1 + j] & 15];
      out[i + 16 + j] = scale * kFp4Values[from[1 + j] >> 4];
    }
  }
}

void read_mxfp4_pairs(const uint8_t* blocks, const uint8_t* scales, int64_t cols, float* out) {
  for (int64_t g = 0; g < cols / tensor::kBlockElements; ++g) {
    const float scale = tensor::e8m0_to_float(scales[g]);
    for (int64_t b = 0; b < 16; ++b) {
      const uint8_t byte = blocks[g * 16 + b];
      out[g * 32 + 2 * b] = scale * kFp4Values[byte & 15];
      out[g * 32 + 2 * b + 1] = scale * kFp4Values[byte >> 4];
    }
  }
}

#include "kernels/ggml_blocks_inl.h"

struct SoftwareHalf {
  static float at(const uint8_t* from) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return tensor::f16_to_float(bits);
  }
};

void read_ggml_blocks(Format format, const uint8_t* row, int64_t cols, float* out) {
  Weights32 weights;
  for (int64_t i = 0; i < cols; i += 32) {
    GgmlBlocks<SoftwareHalf>::read(format, row, i / 32, weights);
    for (int j = 0; j < 32; ++j) {
      const float scaled = weights.scale[j / 16] * static_cast<float>(weights.codes[j]);
      out[i + j] = scaled + weights.offset[j / 16];
    }
  }
}

void read_compact(const uint8_t* row, int64_t cols, float* out) {
  std::vector<uint16_t> bits(static_cast<size_t>(cols));
  tensor::read_compact_row(row, cols, bits.data());
  for (int64_t i = 0; i < cols; ++i) out[i] = bf16_to_float(bits[static_cast<size_t>(i)]);
}

void read_f8_blocks(const uint8_t* from, const BlockScales& scales, int64_t row, int64_t cols,
                    float* out) {
  const float* const of_row = scales.data + row / scales.rows * scales.per_row(cols);
  for (int64_t i = 0; i < cols; ++i) {
    out[i] = tensor::e4m3_to_float(from[i]) * of_row[i / scales.cols];
  }
}

}  // namespace

int64_t row_bytes(Format format, int64_t cols) {
  if (is_ggml_blocks(format)) return tensor::row_bytes(ggml_dtype(format), cols);
  switch (format) {
    case Format::kF32:
      return 4 * cols;
    case Format::kF16:
    case Format::kBf16:
    case Format::kBf16Columns:
      return 2 * cols;
    case Format::kF8Blocks:
      return cols;
    case Format::kQ8_0:
      return tensor::row_bytes(tensor::DType::kQ8_0, cols);
    case Format::kCompactBf16:
      return tensor::row_bytes(tensor::DType::kCompactBf16, cols);
    case Format::kMxfp4Blocks:
    case Format::kMxfp4Pairs:
      return tensor::row_bytes(tensor::DType::kMxfp4, cols);
    case Format::kInt8Tiles:
    case Format::kMxfp4Tiles:
    case Format::kInt4Tiles:
      return tile_bytes(format, cols) / kTileRows;
    default:
      return 0;
  }
}

void read_weight_row(const StoredMatrix& matrix, int64_t row, float* out) {
  const int64_t cols = matrix.cols;
  const auto* bytes = static_cast<const uint8_t*>(matrix.data);
  switch (matrix.format) {
    case Format::kF32:
      std::memcpy(out, bytes + row * cols * 4, static_cast<size_t>(cols) * 4);
      return;
    case Format::kF16: {
      const auto* from = static_cast<const uint16_t*>(matrix.data) + row * cols;
      for (int64_t i = 0; i < cols; ++i) out[i] = tensor::f16_to_float(from[i]);
      return;
    }
    case Format::kBf16: {
      const auto* from = static_cast<const Bf16*>(matrix.data) + row * cols;
      for (int64_t i = 0; i < cols; ++i) out[i] = bf16_to_float(from[i]);
      return;
    }
    case Format::kBf16Columns: {
      const auto* from = static_cast<const Bf16*>(matrix.data) + row;
      for (int64_t i = 0; i < cols; ++i) out[i] = bf16_to_float(from[i * matrix.rows]);
      return;
    }
    case Format::kQ8_0:
      return read_q8_0(bytes + row * row_bytes(matrix.format, cols), cols, out);
    case Format::kMxfp4Blocks:
      return read_mxfp4_blocks(bytes + row * row_bytes(matrix.format, cols), cols, out);
    case Format::kMxfp4Pairs:
      return read_mxfp4_pairs(bytes + row * cols / 2, matrix.scales + row * cols / 32, cols, out);
    case Format::kCompactBf16:
      return read_compact(bytes + row * row_bytes(matrix.format, cols), cols, out);
    case Format::kF8Blocks:
      return read_f8_blocks(bytes + row * cols, matrix.block_scales, row, cols, out);
    case Format::kInt8Tiles:
    case Format::kMxfp4Tiles:
    case Format::kInt4Tiles:
      return read_tiled_row(matrix.format, bytes, row, cols, out);
    default:
      return read_ggml_blocks(matrix.format, bytes + row * row_bytes(matrix.format, cols), cols,
                              out);
  }
}

void reorder_inputs(float* out, const float* x, const Matrix& matrix, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < matrix.cols; ++i) {
      out[t * matrix.cols + i] = x[t * matrix.cols + matrix.input_order[i]];
    }
  }
}

StoredMatrix stored(const Matrix& matrix) {
  return {.data = matrix.data,
          .rows = matrix.rows,
          .cols = matrix.cols,
          .format = matrix.format,
          .block_scales = matrix.block_scales};
}

StoredMatrix expert_matrix(const Experts& experts, int expert) {
  if (experts.apart != nullptr) {
    const ExpertMatrix& matrix = experts.apart[expert];
    return {.data = matrix.data,
            .scales = matrix.scales,
            .rows = experts.rows,
            .cols = experts.cols,
            .format = experts.format,
            .block_scales = matrix.block_scales};
  }
  const int64_t first_row = int64_t{expert} * experts.expert_rows;
  const int64_t cols = experts.cols;
  // The scales of kMxfp4Pairs lie apart: its data has 16 bytes a block.
  const bool pairs = experts.format == Format::kMxfp4Pairs;
  const int64_t offset = first_row * (pairs ? cols / 2 : row_bytes(experts.format, cols));
  return {.data = static_cast<const uint8_t*>(experts.data) + offset,
          .scales = pairs ? experts.scales + first_row * (cols / 32) : nullptr,
          .rows = experts.rows,
          .cols = cols,
          .format = experts.format};
}

}  // namespace pelton::kernels
