// Writes weights in the order in which a device's kernels read them (weight_tiles.h). Exact for
// bf16 and MXFP4 weights in any of their layouts; others are rounded to bf16. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cuda/weight_tiles.h"
#include "kernels/kernels.h"
#include "kernels/weight_row.h"

namespace pelton::cuda {

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

// A row of a matrix as bf16: where it lies, or made in `room` (columns). Exact if the matrix is
// bf16.
const uint16_t* bf16_row(const kernels::StoredMatrix& matrix, int64_t row, uint16_t* room);

// row(number, room): as bf16_row. out: the range's tiles alone.
void pack_bf16_tiles(const TiledShape& shape, TileRange range,
                     base::FunctionRef<const uint16_t*(int64_t row, uint16_t* room)> row,
                     uint8_t* out);

// Experts' gate and up (kGateUp), or their down.
enum class ExpertPart { kGateUp, kDown };

TiledShape expert_shape(const kernels::ExpertWeights& weights, ExpertPart part);

// By how much all scales must become smaller to fit the kernels' arithmetic: 0 for all weights
// below 12. The results are then multiplied with 2^shift. Reads every scale, on the pool's threads.
// Weights that are not MXFP4 give kUnsupported, a scale that is NaN kBadCheckpoint.
Result<int> scale_shift(const kernels::ExpertWeights& weights, ExpertPart part,
                        base::ThreadPool& pool);

// Tiles of one expert's part, of weights that scale_shift took. out, out_scales: the range's alone.
void pack_expert(const kernels::ExpertWeights& weights, ExpertPart part, int expert,
                 TileRange range, int shift, uint8_t* out, uint8_t* out_scales);

// Biases of one expert in the order of kGateUp, or as they are. out: float (rows).
void pack_expert_bias(const kernels::ExpertWeights& weights, ExpertPart part, int expert,
                      float* out);

}  // namespace pelton::cuda
