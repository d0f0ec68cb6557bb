#include "tensor/dtype.h"

#include <array>

namespace pelton::tensor {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t bytes;
};

constexpr std::array<Row, 10> kRows = {{{DType::kF32, "F32", 4},
                                        {DType::kF16, "F16", 2},
                                        {DType::kBf16, "BF16", 2},
                                        {DType::kU8, "U8", 1},
                                        {DType::kI8, "I8", 1},
                                        {DType::kI16, "I16", 2},
                                        {DType::kI32, "I32", 4},
                                        {DType::kI64, "I64", 8},
                                        {DType::kF64, "F64", 8},
                                        {DType::kBool, "BOOL", 1}}};

}  // namespace

size_t dtype_bytes(DType dtype) { return kRows[static_cast<size_t>(dtype)].bytes; }

std::string_view dtype_name(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace pelton::tensor
