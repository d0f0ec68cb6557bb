// Rounds weights to GGUF's blocks: the other way of kernels/ggml_blocks_inl.h. Blocks of 32 have
// one scale that follows from their extremes; super-blocks of 256 (K-quants) have scales, and
// minima, of their runs, which are chosen for the least squared error. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace pelton::checkpoint {

// Whether there is an encoder: kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K.
bool is_encodable(tensor::DType type);

// A row of whole blocks (CHECKed) of finite weights; `out` has tensor::row_bytes bytes.
void encode_row(tensor::DType type, std::span<const float> weights, uint8_t* out);

}  // namespace pelton::checkpoint
