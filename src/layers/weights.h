// Finds a layer's tensors in a checkpoint and gives them to the kernels as typed matrices. What is
// missing or of another shape is a kBadCheckpoint naming the tensor.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace pelton::layers {

// bf16 (count)
Result<const kernels::Bf16*> bf16_vector(const checkpoint::Checkpoint& checkpoint,
                                         const std::string& name, int64_t count);
// bf16 (rows, cols), row-major
Result<const kernels::Bf16*> bf16_matrix(const checkpoint::Checkpoint& checkpoint,
                                         const std::string& name, int64_t rows, int64_t cols);
// `name`.weight (rows, cols) and `name`.bias (rows)
Result<kernels::Bf16Linear> bf16_linear(const checkpoint::Checkpoint& checkpoint,
                                        const std::string& name, int rows, int cols);
// `name`_blocks (experts, rows, cols/32, 16), `name`_scales, `name`_bias
Result<kernels::Mxfp4Experts> mxfp4_experts(const checkpoint::Checkpoint& checkpoint,
                                            const std::string& name, int experts, int rows,
                                            int cols);

}  // namespace pelton::layers
