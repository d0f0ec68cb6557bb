// Writes weights in the order in which a device's kernels read them (weight_tiles.h). Exact for
// bf16 and MXFP4 weights in any of their layouts; others are rounded to bf16. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/cuda/weight_tiles.h"
#include "kernels/kernels.h"

namespace pelton::kernels::gpu {

struct TiledShape {
  int rows = 0;
  int columns = 0;
  RowOrder order = RowOrder::kPlain;
  int head_size = 0;  // of kHeads
};

// The matrix's row that stands as row `row` (0..15) of a tile; -1: none, zeros. Of kGateUp, rows
// count gate's first and then up's.
int64_t row_of_tile(const TiledShape& shape, int64_t tile, int row);

int64_t tiles_bytes(WeightType type, const TiledShape& shape);  // without scales
int64_t scales_bytes(const TiledShape& shape);

struct TileRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// read_row(row, out): float (columns). out: the range's tiles alone.
void pack_bf16_tiles(const TiledShape& shape, TileRange range,
                     base::FunctionRef<void(int64_t row, float* out)> read_row, uint8_t* out);

// One expert's gate and up (kGateUp), or its down, whose weights must be MXFP4 of some layout: what
// is not gives kUnsupported. `shift` is taken from every scale (scale_shift).
enum class ExpertPart { kGateUp, kDown };
Result<void> pack_expert(const ExpertWeights& weights, ExpertPart part, int expert, int shift,
                         uint8_t* out, uint8_t* out_scales);

// By how much scales must become smaller to fit the kernels' arithmetic: 0 for all weights below
// 12. The results are then multiplied with 2^shift.
Result<int> scale_shift(const ExpertWeights& weights, ExpertPart part);

TiledShape expert_shape(const ExpertWeights& weights, ExpertPart part);

// Biases in the order of kGateUp, or as they are. out: float (experts, rows).
void pack_expert_bias(const ExpertWeights& weights, ExpertPart part, float* out);

}  // namespace pelton::kernels::gpu
