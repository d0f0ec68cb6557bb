#include "kernels/cpu/tile_choice.h"

#include <utility>

#if defined(__x86_64__)

namespace pelton::kernels {

std::unique_ptr<TileKernels> make_narrow_tiles(base::ThreadPool& pool) {
  return has_avxvnni() ? make_avxvnni_tiles(pool) : make_avx2_tiles(pool);
}

TileChoice choose_wide_tiles(base::ThreadPool& pool, Amx amx, TileFactory make_amx) {
  if (!has_vbmi()) {
    return {has_vnni() ? make_avx512_vnni_tiles(pool) : make_narrow_tiles(pool), "avx512"};
  }
  if (amx == Amx::kAbsent) return {make_avx512_vbmi_tiles(pool), "avx512"};
  if (amx == Amx::kRefused) {
    return {make_avx512_vbmi_tiles(pool), "avx512 (amx: the system refuses it)"};
  }
  if (auto tiles = make_amx(pool)) return {std::move(tiles), "avx512+amx"};
  return {make_avx512_vbmi_tiles(pool), "avx512 (amx: it computes other bits)"};
}

}  // namespace pelton::kernels
#elif defined(__aarch64__)

namespace pelton::kernels {

std::unique_ptr<TileKernels> make_arm_tiles(base::ThreadPool& pool) {
  if (has_i8mm()) return make_i8mm_tiles(pool);
  return has_dotprod() ? make_dotprod_tiles(pool) : make_neon_tiles(pool);
}

}  // namespace pelton::kernels
#endif
