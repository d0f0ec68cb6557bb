// Tile kernels with AVX-512 VNNI. Compiled with those flags; nothing here may run before
// kernels.cc has asked the processor.
#include <vector>

#include <immintrin.h>

#include "kernels/cpu/expert_groups.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/tiles.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

#include "kernels/cpu/tiles_avx512_inl.h"

}  // namespace

std::unique_ptr<TileKernels> make_avx512_vnni_tiles(base::ThreadPool& pool) {
  return std::make_unique<Tiles<VectorProducts>>(pool);
}

}  // namespace pelton::kernels
