// How many bytes one block of keys and values of one layer takes in each type it may be kept in:
// the one place that knows. The allocator, the kernels and cost_model's footprint build on it.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace pelton::tensor {

struct KvBlockShape {
  int kv_heads = 0;
  int head_size = 0;
  int block_tokens = 0;
};

// Keys and values of all heads, with their scales where the type has any.
int64_t kv_block_bytes(DType dtype, const KvBlockShape& shape);

}  // namespace pelton::tensor
