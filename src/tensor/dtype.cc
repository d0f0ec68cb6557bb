#include "tensor/dtype.h"

#include <array>

#include "base/check.h"
#include "tensor/tile.h"

namespace pelton::tensor {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t bytes;
};

constexpr std::array<Row, 16> kRows = {{{DType::kF32, "F32", 4},
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
                                        {DType::kInt4Tiles, "INT4_TILES", kTileRows * 18}}};

}  // namespace

bool is_block_type(DType dtype) {
  return dtype == DType::kQ8_0 || dtype == DType::kMxfp4 || is_tiled(dtype);
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
  return kRows[static_cast<size_t>(dtype)].bytes;
}

int64_t row_bytes(DType dtype, int64_t elements) {
  const auto bytes = static_cast<int64_t>(kRows[static_cast<size_t>(dtype)].bytes);
  if (!is_block_type(dtype)) return elements * bytes;
  CHECK(elements % kBlockElements == 0);
  if (is_tiled(dtype)) return tile_bytes(dtype, elements) / kTileRows;
  return elements / kBlockElements * bytes;
}

std::string_view dtype_name(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name && !is_block_type(row.dtype)) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace pelton::tensor
