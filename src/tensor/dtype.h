// Element types of stored tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pelton::tensor {

enum class DType : uint8_t { kF32, kF16, kBf16, kU8, kI8, kI16, kI32, kI64, kF64, kBool };

size_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);                        // "BF16"
std::optional<DType> dtype_from_name(std::string_view name);     // safetensors' names

}  // namespace pelton::tensor
