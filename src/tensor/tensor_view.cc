#include "tensor/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::tensor {

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace pelton::tensor
