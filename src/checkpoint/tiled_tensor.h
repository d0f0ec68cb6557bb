// How Pelton's own safetensors files hold tiled matrices: as bytes, (..., tiles, bytes of a tile),
// under a name that says of what kind the tiles are. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

// Names in a file's __metadata__.
inline constexpr std::string_view kTilesVersionKey = "pelton.tiles";  // kTilesVersion
inline constexpr std::string_view kTilesVersion = "2";
inline constexpr std::string_view kActivationsKey = "pelton.activations";  // "int8" or "int16"
inline constexpr std::string_view kSourceKey = "pelton.source";            // what it was made from
inline constexpr std::string_view kFingerprintKey = "pelton.source_fingerprint";  // fingerprint.h
inline constexpr std::string_view kWeightsKey = "pelton.weights";  // of attention and head
inline constexpr std::string_view kSha256Key = "pelton.sha256";    // of all that follows the header

// What a file of tiles says of itself. Files of before say less.
struct TilesNote {
  int activation_bits = 0;  // tiles are to be multiplied with: 8 or 16; 0: there are no tiles
  std::string source;
  std::string source_fingerprint;
  std::string weights;
  std::string sha256;
};

// (rows, cols) or (experts, rows, cols), rows a multiple of 16, as it is stored.
PlannedTensor stored_tiles(const std::string& name, tensor::DType dtype,
                           const std::vector<int64_t>& shape);

// The matrix that a stored tensor is: name, type and shape (rows, cols); empty if it is none.
struct TiledTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kInt8Tiles;
  std::vector<int64_t> shape;
};
std::optional<TiledTensor> tiled_tensor(std::string_view stored_name, tensor::DType stored_dtype,
                                        const std::vector<int64_t>& stored_shape);

}  // namespace pelton::checkpoint
