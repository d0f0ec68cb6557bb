// Which form of a product computes how many rows (device/product.h): all forms give the same bits,
// so this decides about speed alone. Pure; host.
#pragma once

#include <cstdint>

#include "kernels/cuda/weight_tiles.h"

namespace pelton::kernels::gpu {

// One block: `columns` rows of activations. `small`: columns / 8 column tiles; else columns / 64
// warps beside each other.
struct ProductPlan {
  bool small = true;
  int columns = 8;
};

// No less than device/product.h takes (static_asserts in start_product.h say so).
constexpr int64_t small_shared_bytes(int chunks, int columns, bool with_low) {
  const int64_t staged = int64_t{columns} * (chunks * kChunkColumns * 2 + 64);
  return staged * (with_low ? 2 : 1) + int64_t{kSlices} * 2 * (columns / 8) * 32 * 4 * 4;
}

// For up to `rows` rows of `chunks` chunks, on a device whose blocks may have so much shared
// memory. columns 0: not even 8 rows fit.
constexpr ProductPlan plan_product(int rows, int chunks, bool with_low, int64_t shared_bytes_max) {
  if (rows > 64 && !with_low) return {.small = false, .columns = 128};
  if (rows > 32 && !with_low) return {.small = false, .columns = 64};
  int columns = rows <= 8 ? 8 : rows <= 16 || with_low ? 16 : 32;
  while (columns >= 8 && small_shared_bytes(chunks, columns, with_low) > shared_bytes_max) {
    columns /= 2;
  }
  return {.small = true, .columns = columns >= 8 ? columns : 0};
}

// For experts: how many entries of an expert a block takes. 8, 32 (where that fits) or 64.
constexpr ProductPlan plan_experts(int rows, int choices, int experts, int chunks,
                                   int64_t shared_bytes_max) {
  const int each = rows * choices / experts;  // on average, if routing is even
  if (each >= 32) return {.small = false, .columns = 64};
  const bool fits = small_shared_bytes(chunks, 32, false) <= shared_bytes_max;
  if (each >= 6)
    return fits ? ProductPlan{.small = true, .columns = 32}
                : ProductPlan{.small = false, .columns = 64};
  return {.small = true, .columns = 8};
}

}  // namespace pelton::kernels::gpu
