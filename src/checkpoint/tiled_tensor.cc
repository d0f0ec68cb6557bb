#include "checkpoint/tiled_tensor.h"

#include <limits>

#include "base/check.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

std::string_view suffix_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8Tiles:
      return ".int8_tiles";
    case DType::kInt4Tiles:
      return ".int4_tiles";
    default:
      return ".mxfp4_tiles";
  }
}

// The columns whose tile has so many bytes; 0: none.
int64_t columns_of(DType dtype, int64_t bytes) {
  const int64_t of_block = tensor::tile_bytes(dtype, 64 * tensor::kBlockElements) / 64;
  const int64_t columns = bytes / of_block * tensor::kBlockElements;
  return tensor::tile_bytes(dtype, columns) == bytes ? columns : 0;
}

}  // namespace

PlannedTensor stored_tiles(const std::string& name, DType dtype,
                           const std::vector<int64_t>& shape) {
  const int64_t rows = shape[shape.size() - 2];
  CHECK(rows % tensor::kTileRows == 0);
  std::vector<int64_t> stored = shape;
  stored[shape.size() - 2] = rows / tensor::kTileRows;
  stored[shape.size() - 1] = tensor::tile_bytes(dtype, shape.back());
  return {name + std::string(suffix_of(dtype)), DType::kU8, std::move(stored)};
}

std::optional<TiledTensor> tiled_tensor(std::string_view stored_name, DType stored_dtype,
                                        const std::vector<int64_t>& stored_shape) {
  if (stored_dtype != DType::kU8 || stored_shape.size() < 2) return std::nullopt;
  for (const DType dtype : {DType::kInt8Tiles, DType::kMxfp4Tiles, DType::kInt4Tiles}) {
    const std::string_view suffix = suffix_of(dtype);
    if (!stored_name.ends_with(suffix)) continue;
    const int64_t tiles = stored_shape[stored_shape.size() - 2];
    const int64_t columns = columns_of(dtype, stored_shape.back());
    if (columns == 0 || tiles > std::numeric_limits<int64_t>::max() / tensor::kTileRows) {
      return std::nullopt;
    }
    stored_name.remove_suffix(suffix.size());
    TiledTensor out{std::string(stored_name), dtype, stored_shape};
    out.shape[out.shape.size() - 2] = tiles * tensor::kTileRows;
    out.shape.back() = columns;
    return out;
  }
  return std::nullopt;
}

}  // namespace pelton::checkpoint
