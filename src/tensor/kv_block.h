// The types in which keys and values may be kept, and how many bytes one block of one layer takes
// in each: the one place that knows. The allocator, the kernels and cost_model's footprint build on
// it.
//
// A block lies in one piece; in it, for each kv head: keys transposed (head_size, block_tokens),
// values (block_tokens, head_size), then for the one-byte types a scale of each token's key and one
// of its value, bf16 (2, block_tokens). docs/decisions/0009-kv-dtypes.md says why.
//
// Latent attention keeps one row of each token instead, for all heads together: rows (block_tokens,
// head_size), then for the one-byte types a scale of each, bf16 (block_tokens).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace pelton::tensor {

struct KvBlockShape {
  int kv_heads = 0;
  int head_size = 0;
  int block_tokens = 0;
  bool latent = false;  // one row a token, and kv_heads is 1
};

// One-byte types: kI8, kF8E4m3.
bool kv_has_scales(DType dtype);

// Keys and values of all heads, with their scales where the type has any.
int64_t kv_block_bytes(DType dtype, const KvBlockShape& shape);

// The part of one kv head: what one (token, head) takes, times block_tokens.
int64_t kv_head_bytes(DType dtype, const KvBlockShape& shape);

std::string_view kv_type_name(DType dtype);  // "f32", "f16", "bf16", "fp8" or "int8"

// f16, bf16, fp8, int8; auto is empty: what the kernels prefer. Errors: kInvalidArgument.
Result<std::optional<DType>> parse_kv_type(std::string_view name);

}  // namespace pelton::tensor
