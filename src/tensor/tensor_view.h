// A stored tensor as it lies in memory: row-major, contiguous, not owned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace pelton::tensor {

struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // Exactly what the shape's rows of that type need; of kCompactBf16 its raw blocks behind them.
  std::span<const uint8_t> bytes;

  int64_t element_count() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

std::string shape_text(std::span<const int64_t> shape);  // "[32, 5760, 90, 16]"

}  // namespace pelton::tensor
