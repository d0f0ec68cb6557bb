#include "checkpoint/tiled_tensor.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "tensor/tile.h"

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
  const tensor::TileShape shape = tensor::tile_shape(dtype);
  const int64_t rest = bytes % shape.group_bytes();  // a line and its blocks
  const int64_t blocks = bytes / shape.group_bytes() * shape.blocks_of_line() +
                         std::max<int64_t>(rest - shape.kLineBytes, 0) / shape.block_bytes;
  return shape.bytes(blocks) == bytes ? blocks * tensor::kBlockElements : 0;
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
