#include "tensor/kv_block.h"

#include <fmt/format.h>

namespace pelton::tensor {
namespace {

constexpr int64_t kScaleBytes = 2;  // bf16

}  // namespace

bool kv_has_scales(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8E4m3;
}

int64_t kv_head_bytes(DType dtype, const KvBlockShape& shape) {
  const int64_t scale = kv_has_scales(dtype) ? kScaleBytes : 0;
  const int64_t vector = shape.head_size * static_cast<int64_t>(dtype_bytes(dtype)) + scale;
  return (shape.latent ? 1 : 2) * vector * shape.block_tokens;
}

int64_t kv_block_bytes(DType dtype, const KvBlockShape& shape) {
  return shape.kv_heads * kv_head_bytes(dtype, shape);
}

std::string_view kv_type_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kF8E4m3:
      return "fp8";
    case DType::kI8:
      return "int8";
    default:
      return "no KV type";
  }
}

Result<std::optional<DType>> parse_kv_type(std::string_view name) {
  if (name == "auto") return std::optional<DType>();
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF8E4m3, DType::kI8}) {
    if (name == kv_type_name(dtype)) return std::optional<DType>(dtype);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("\"{}\" is not one of auto, f16, bf16, fp8, int8", name),
               "kv-cache-dtype"};
}

}  // namespace pelton::tensor
