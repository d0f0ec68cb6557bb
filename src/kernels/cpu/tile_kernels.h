// Products with tiled weights (kernels/tiles.h) and quantised activations, in integer arithmetic.
//
// Each 32 activations of a row share a scale, largest magnitude / 127 or / 16256, and become signed
// bytes in one plane, or in two: 128 * high + low (Activations::kInt16). A block's dot product is
// exact; blocks are added in the order of the columns, each row of weights in a lane of its own:
//   sum = fma(float(dot), weight scale * activation scale, sum)
// So results depend on the row and the format alone, and every implementation gives the same bits
// (but for the SwiGLU between two products, whose exponential is each one's own).
// Owned by the kernels; their thread, which the pool's workers help.
#pragma once

#include <memory>

#include "kernels/cpu/expert_additions.h"
#include "kernels/kernels.h"

namespace pelton::kernels {

class TileKernels {
 public:
  virtual ~TileKernels() = default;

  // As Kernels::reserve and Kernels::scratch_bytes, for what is kept here.
  virtual void reserve(const StepCapacity& shape) = 0;
  virtual int64_t scratch_bytes() const = 0;

  // As Kernels::linear and Kernels::experts, for weights that are tiled. additions: null without
  // any; shape.adapters is not looked at.
  virtual void linear(float* out, const float* x, const Linear& linear, int tokens,
                      Kernels::Output output) = 0;
  virtual void experts(float* out, const float* x, const ExpertChoice* choices,
                       const ExpertWeights& weights, const MoeShape& shape, int tokens,
                       ExpertAdditions* additions) = 0;
};

// Null if AMX was tried and gave other bits than VNNI.
std::unique_ptr<TileKernels> make_amx_tiles(base::ThreadPool& pool);          // and VNNI and VBMI
std::unique_ptr<TileKernels> make_avx512_vbmi_tiles(base::ThreadPool& pool);  // and VNNI
std::unique_ptr<TileKernels> make_avx512_vnni_tiles(base::ThreadPool& pool);
std::unique_ptr<TileKernels> make_avxvnni_tiles(base::ThreadPool& pool);  // and AVX2
std::unique_ptr<TileKernels> make_avx2_tiles(base::ThreadPool& pool);
std::unique_ptr<TileKernels> make_i8mm_tiles(base::ThreadPool& pool);  // and dotprod
std::unique_ptr<TileKernels> make_dotprod_tiles(base::ThreadPool& pool);
std::unique_ptr<TileKernels> make_neon_tiles(base::ThreadPool& pool);

}  // namespace pelton::kernels
