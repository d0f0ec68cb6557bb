// How a product is computed (device/product.h). All configs give the same bits, so a config decides
// about speed alone. The lists are what a device library holds kernels for: a config that stands in
// none of them cannot be started. Plain data; pure.
#pragma once

#include <cstdint>

#include "cuda/weight_tiles.h"

namespace pelton::cuda {

enum class KernelKind : int32_t {
  kSmall,  // whole rows of activations in shared memory, a warp for each slice
  kLarge,  // for many rows: columns / 64 warps beside each other
  kWide,   // for many rows, by wgmma (device/wide_product.h): not every device has it
};

struct KernelConfig {
  int32_t columns = 0;    // rows of activations that a block takes; 0: no config is named
  int32_t row_tiles = 0;  // small config: tiles of weights that a block takes
  KernelKind kind = KernelKind::kSmall;

  constexpr bool operator==(const KernelConfig&) const = default;
};

constexpr KernelConfig large_config(int columns) {
  return {columns, 0, KernelKind::kLarge};
}
constexpr KernelConfig wide_config(int columns) {
  return {columns, 0, KernelKind::kWide};
}

// What a device has, as far as it decides about the configs that it can take.
struct KernelDevice {
  int64_t shared_bytes_max = 0;  // of a block
  bool has_wide = false;         // wgmma, and it gives mma.sync's bits
};

// Of one activation more than any of its widths is read from shared memory anyway, so few configs
// are worth their compile time: 8 columns for decode, 64 and 128 for prompts, and what is between.
inline constexpr KernelConfig kDenseConfigs[] = {
    {8, 1},  {8, 2},           {16, 1},           {16, 2},         {32, 1},
    {32, 2}, large_config(64), large_config(128), wide_config(64), wide_config(128)};
// With a low part: shared memory holds two rows for each.
inline constexpr KernelConfig kLowConfigs[] = {{8, 1}, {16, 1}};
inline constexpr KernelConfig kExpertConfigs[] = {
    {8, 1},          {8, 2},          {8, 4},           {16, 2},
    {32, 1},         {32, 2},         large_config(64), large_config(128),
    wide_config(64), wide_config(128)};

// Bytes from one activation row to the next in shared memory: 16 more than a multiple of 128, so
// that the eight rows of a matrix (load_matrices) meet all 32 banks.
constexpr int staged_row_bytes(int chunks) {
  return chunks * kChunkColumns * 2 + 16;
}

// What a block of the small config has: whole rows of activations, and eight slices' sums.
constexpr int64_t small_product_shared_bytes(int chunks, int columns, int row_tiles,
                                             bool with_low) {
  const int64_t staged = int64_t{columns} * staged_row_bytes(chunks) * (with_low ? 2 : 1);
  return staged + int64_t{kSlices} * row_tiles * (columns / 8) * 32 * 4 * int64_t{sizeof(float)};
}

// Chunks of activations on their way or in use.
inline constexpr int kLargeStages = 3;
inline constexpr int kWideStages = 6;

constexpr int64_t staged_bytes(int stages, int columns) {
  return int64_t{stages} * columns * kChunkColumns * 2;
}

constexpr int64_t config_shared_bytes(const KernelConfig& config, int chunks, bool with_low) {
  switch (config.kind) {
    case KernelKind::kLarge:
      return staged_bytes(kLargeStages, config.columns);
    case KernelKind::kWide:
      return staged_bytes(kWideStages, config.columns);
    case KernelKind::kSmall:
      break;
  }
  return small_product_shared_bytes(chunks, config.columns, config.row_tiles, with_low);
}

}  // namespace pelton::cuda
