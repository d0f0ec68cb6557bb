// The fast kernels for x86-64 and 64-bit Arm. Experts are multiplied as MXFP4 and the rest as bf16,
// straight from the mapped checkpoint: a weight becomes float32 only in a register. Whether the
// processor has the instructions is the caller's to check (kernels/kernels.cc). Threads: as
// kernels/kernels.h.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/cpu/tile_kernels.h"
#include "kernels/kernels.h"

namespace pelton::kernels {

// `tiles` does what is asked of tiled weights; `name`, a literal, names it.
std::unique_ptr<Kernels> make_avx512_kernels(base::ThreadPool& pool,
                                             std::unique_ptr<TileKernels> tiles,
                                             std::string_view name);
std::unique_ptr<Kernels> make_avx2_kernels(base::ThreadPool& pool,
                                           std::unique_ptr<TileKernels> tiles);
std::unique_ptr<Kernels> make_neon_kernels(base::ThreadPool& pool,
                                           std::unique_ptr<TileKernels> tiles);

}  // namespace pelton::kernels
