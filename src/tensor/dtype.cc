#include "tensor/dtype.h"

#include <array>

#include "base/check.h"
#include "tensor/compact_bf16.h"
#include "tensor/tile.h"

namespace pelton::tensor {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t bytes;                   // of an element, or of a block
  int elements = kBlockElements;  // of a block
  HalfPlaces scales{};
};

constexpr std::array<Row, 28> kRows = {{{DType::kF32, "F32", 4},
                                        {DType::kF16, "F16", 2},
                                        {DType::kBf16, "BF16", 2},
                                        {DType::kU8, "U8", 1},
                                        {DType::kI8, "I8", 1},
                                        {DType::kI16, "I16", 2},
                                        {DType::kI32, "I32", 4},
                                        {DType::kI64, "I64", 8},
                                        {DType::kF64, "F64", 8},
                                        {DType::kBool, "BOOL", 1},
                                        {DType::kF8E4m3, "F8_E4M3", 1},
                                        {DType::kQ8_0, "Q8_0", kQ8_0BlockBytes},
                                        {DType::kMxfp4, "MXFP4", kMxfp4BlockBytes},
                                        {DType::kInt8Tiles, "INT8_TILES", kTileRows * 34},
                                        {DType::kMxfp4Tiles, "MXFP4_TILES", kTileRows * 17},
                                        {DType::kInt4Tiles, "INT4_TILES", kTileRows * 18},
                                        {DType::kQ4_0, "Q4_0", 18},
                                        {DType::kQ4_1, "Q4_1", 20, 32, {0, 2}},
                                        {DType::kQ5_0, "Q5_0", 22},
                                        {DType::kQ5_1, "Q5_1", 24, 32, {0, 2}},
                                        {DType::kQ2_K, "Q2_K", 84, 256, {80, 82}},
                                        {DType::kQ3_K, "Q3_K", 110, 256, {108}},
                                        {DType::kQ4_K, "Q4_K", 144, 256, {0, 2}},
                                        {DType::kQ5_K, "Q5_K", 176, 256, {0, 2}},
                                        {DType::kQ6_K, "Q6_K", 210, 256, {208}},
                                        {DType::kIq4Nl, "IQ4_NL", 18},
                                        {DType::kIq4Xs, "IQ4_XS", 136, 256},
                                        {DType::kCompactBf16, "BF16_COMPACT", kCompactBlockBytes}}};

const Row& row_of(DType dtype) {
  return kRows[static_cast<size_t>(dtype)];
}

}  // namespace

bool is_block_type(DType dtype) {
  return dtype == DType::kQ8_0 || dtype == DType::kMxfp4 || is_tiled(dtype) ||
         is_ggml_block_type(dtype) || dtype == DType::kCompactBf16;
}

bool is_ggml_block_type(DType dtype) {
  return dtype >= DType::kQ4_0 && dtype <= DType::kIq4Xs;
}

int block_elements(DType dtype) {
  return row_of(dtype).elements;
}

HalfPlaces ggml_scales_at(DType dtype) {
  return row_of(dtype).scales;
}

bool is_tiled(DType dtype) {
  return dtype == DType::kInt8Tiles || dtype == DType::kMxfp4Tiles || dtype == DType::kInt4Tiles;
}

int64_t tile_bytes(DType dtype, int64_t columns) {
  CHECK(is_tiled(dtype) && columns % kBlockElements == 0);
  return tile_shape(dtype).bytes(columns / kBlockElements);
}

size_t dtype_bytes(DType dtype) {
  CHECK(!is_block_type(dtype));
  return row_of(dtype).bytes;
}

int64_t row_bytes(DType dtype, int64_t elements) {
  const auto bytes = static_cast<int64_t>(row_of(dtype).bytes);
  if (!is_block_type(dtype)) return elements * bytes;
  CHECK(elements % block_elements(dtype) == 0);
  if (is_tiled(dtype)) return tile_bytes(dtype, elements) / kTileRows;
  const int64_t header = dtype == DType::kCompactBf16 ? kCompactHeaderBytes : 0;
  return header + elements / block_elements(dtype) * bytes;
}

std::string_view dtype_name(DType dtype) {
  return row_of(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name && !is_block_type(row.dtype)) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace pelton::tensor
