// Which type each matrix of a GGUF file gets: one for all, or mixed by what rounding it costs, as
// llama.cpp's Q4_K_M is (src/llama-quant.cpp there). Pure; any thread.
#pragma once

#include "families/expected_tensors.h"
#include "families/model_config.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

// `wanted`: a matrix of the kGguf layout that is no router and no MXFP4. `matrices`: kBf16, kQ8_0,
// or kQ4_K for Q4_K_M: Q6_K in the head (or the embedding, where it is the head), in values and
// down projections of the first and last eighth of the layers and of every third between; else
// Q4_K. Where a row is not a whole number of blocks, the type beside it with blocks of 32 stands in
// its place, and bf16 in that one's.
tensor::DType mixed_type(tensor::DType matrices, const families::ExpectedTensor& wanted,
                         const families::ModelConfig& config);

}  // namespace pelton::checkpoint
