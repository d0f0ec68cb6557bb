// Tile kernels with NEON and its products of four bytes (dotprod). Compiled with that flag; nothing
// here may run before kernels.cc has asked the processor.
#include <vector>

#include <arm_neon.h>

#include "kernels/cpu/expert_groups.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/tiles.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

#include "kernels/cpu/tiles_neon_inl.h"

}  // namespace

std::unique_ptr<TileKernels> make_dotprod_tiles(base::ThreadPool& pool) {
  return std::make_unique<Tiles<VectorProducts>>(pool);
}

}  // namespace pelton::kernels
