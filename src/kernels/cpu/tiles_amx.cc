// Tile kernels with AMX's products of bytes, and AVX-512 VNNI and VBMI for the rest. Compiled with
// those flags; nothing here may run before ask_for_amx (processor.h) has said that it may. Never
// run on such a processor: docs/decisions/0027.
#include <vector>

#include <immintrin.h>

#include "kernels/cpu/expert_groups.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/tiles.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

#include "kernels/cpu/tiles_amx_inl.h"

// g++'s own intrinsics do not say that they read memory: what was just stored there could come
// late.
struct ProcessorUnit {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // sums += activations * weights, both signed, four columns to an element of the sums.
  template <int kSums, int kActivations, int kWeights>
  static void multiply_add() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSums), "i"(kActivations), "i"(kWeights));
  }
};

}  // namespace

std::unique_ptr<TileKernels> make_amx_tiles(base::ThreadPool& pool) {
  return make_unit_tiles<ProcessorUnit>(pool);
}

}  // namespace pelton::kernels
