// The rows that latent attention caches, written and read: plain code that all kernels share, so
// that they keep the same bytes. Compiled for any processor. Pure.
#pragma once

#include "kernels/kernels.h"

namespace pelton::kernels {

inline constexpr int kLatentWidthMax = 1024;

// row: float (cache.head_size), of the token in `slot` of `block`.
void write_latent_row(const KvLayer& cache, int32_t block, int slot, const float* row);
void read_latent_row(const KvLayer& cache, int32_t block, int slot, float* row);

}  // namespace pelton::kernels
