// One row of a weight matrix as float32, whatever its format: for the reference, the embedding and
// checks. Pure; any thread.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace pelton::kernels {

// out: float (cols) = row `row` of a matrix at `data` with `rows` rows; exact (kF8Blocks: rounded
// once). `scales` belong to kMxfp4Pairs, `block_scales` to
// kF8Blocks; both start with the matrix.
struct StoredMatrix {
  const void* data = nullptr;
  const uint8_t* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  Format format = Format::kBf16;
  BlockScales block_scales{};
};
void read_weight_row(const StoredMatrix& matrix, int64_t row, float* out);

StoredMatrix stored(const Matrix& matrix);

// Rows [begin, end) of the inputs of a matrix with an input_order, as its columns lie:
// out[t][i] = x[t][input_order[i]]. out, x: float (tokens, cols).
void reorder_inputs(float* out, const float* x, const Matrix& matrix, int64_t begin, int64_t end);

// The matrix of one expert.
StoredMatrix expert_matrix(const Experts& experts, int expert);

}  // namespace pelton::kernels
