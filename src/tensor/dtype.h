// Element types of stored tensors: plain ones, and GGUF's blocks of 32 or 256 along a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pelton::tensor {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
  kBool,
  kF8E4m3,  // OCP FP8: 4 exponent bits, bias 7, no infinity
  // A float16 scale, then 32 signed bytes: element i is scale * byte i.
  kQ8_0,
  // An E8M0 scale, then 16 bytes of E2M1: low nibbles are elements 0 to 15, high ones 16 to 31.
  kMxfp4,
  // Pelton's own: 16 rows interleaved in tiles, as the fast kernels read them (kernels/tiles.h).
  kInt8Tiles,
  kMxfp4Tiles,
  kInt4Tiles,
  // GGUF's other blocks of 32, and "super-blocks" of 256 (kernels/ggml_blocks_inl.h).
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIq4Nl,
  kIq4Xs,
  // Pelton's own, in memory only: bf16 in 12 bits (tensor/compact_bf16.h).
  kCompactBf16,
};

inline constexpr int kBlockElements = 32;
inline constexpr int kQ8_0BlockBytes = 34;
inline constexpr int kMxfp4BlockBytes = 17;
inline constexpr int kTileRows = 16;

// Stored in blocks: kQ8_0, kMxfp4, the tiles, kQ4_0 to kIq4Xs and kCompactBf16.
bool is_block_type(DType dtype);
// From kQ4_0 to kIq4Xs.
bool is_ggml_block_type(DType dtype);
int block_elements(DType dtype);  // of a block type: kBlockElements or 256
// Where the float16 scales of such a block lie: the second one is -1 where there is one.
struct HalfPlaces {
  int first = 0;
  int second = -1;
};
HalfPlaces ggml_scales_at(DType dtype);
bool is_tiled(DType dtype);

// Of one tile: 16 rows of `columns`, a multiple of kBlockElements (tensor/tile.h).
int64_t tile_bytes(DType dtype, int64_t columns);

size_t dtype_bytes(DType dtype);  // of one element; no block type (CHECKed)
// Of a row; a block type's has whole blocks (CHECKed).
int64_t row_bytes(DType dtype, int64_t elements);
std::string_view dtype_name(DType dtype);                     // "BF16"
std::optional<DType> dtype_from_name(std::string_view name);  // safetensors' names: plain types

}  // namespace pelton::tensor
