// Which tile kernels this processor gets, and what the kernels are then called. The thread that
// makes the kernels.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/cpu/processor.h"
#include "kernels/cpu/tile_kernels.h"

namespace pelton::kernels {

#if defined(__x86_64__)
struct TileChoice {
  std::unique_ptr<TileKernels> tiles;
  std::string_view kernels_name;  // a literal
};

using TileFactory = std::unique_ptr<TileKernels> (*)(base::ThreadPool& pool);

std::unique_ptr<TileKernels> make_narrow_tiles(base::ThreadPool& pool);  // without AVX-512
// `make_amx` is called if `amx` is there; where it gives none, AMX has been tried and is wrong.
TileChoice choose_wide_tiles(base::ThreadPool& pool, Amx amx, TileFactory make_amx);
#elif defined(__aarch64__)
std::unique_ptr<TileKernels> make_arm_tiles(base::ThreadPool& pool);
#endif

}  // namespace pelton::kernels
