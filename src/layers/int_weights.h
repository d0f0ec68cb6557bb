// Integer weights as GPTQ, AWQ and compressed-tensors publish them: codes of 4 bits (or 8, but for
// AWQ) in words of 32, or int8, a scale and a zero point for each group along a row; weight = scale
// * (code - zero). They are brought, when loaded, into the blocks that the kernels read: Q4_0 where
// all zero points are in the middle, which is 4.5 bits a weight, otherwise Q8_0, which is 8.5. Both
// are exact. Where groups are of inputs in any order (GPTQ's act order), columns are sorted by
// group, and Matrix::input_order says which input each one is multiplied with. Pure but for the
// memory that they take.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::layers {

// `base`: the tensors' names without "qweight" ("model.layers.0.mlp.up_proj."); (rows, cols) of the
// matrix. Errors: kBadCheckpoint, kUnsupported naming the tensor (groups of different sizes, scales
// beyond float16).
Result<kernels::Matrix> load_int_weight(const checkpoint::Checkpoint& checkpoint,
                                        const std::string& base, int rows, int cols,
                                        FloatVectors& keep);

}  // namespace pelton::layers
