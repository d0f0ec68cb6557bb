#include "layers/weights.h"

#include <array>

namespace pelton::layers {
namespace {

using tensor::DType;

template <typename T, size_t N>
Result<const T*> find(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                      DType dtype, const std::array<int64_t, N>& shape) {
  TRY_ASSIGN(const tensor::TensorView view, checkpoint.tensor(name, dtype, shape));
  return view.as<T>();
}

}  // namespace

Result<const kernels::Bf16*> bf16_vector(const checkpoint::Checkpoint& checkpoint,
                                         const std::string& name, int64_t count) {
  return find<kernels::Bf16>(checkpoint, name, DType::kBf16, std::array{count});
}

Result<const kernels::Bf16*> bf16_matrix(const checkpoint::Checkpoint& checkpoint,
                                         const std::string& name, int64_t rows, int64_t cols) {
  return find<kernels::Bf16>(checkpoint, name, DType::kBf16, std::array{rows, cols});
}

Result<kernels::Bf16Linear> bf16_linear(const checkpoint::Checkpoint& checkpoint,
                                        const std::string& name, int rows, int cols) {
  kernels::Bf16Linear linear{.rows = rows, .cols = cols};
  TRY_ASSIGN(linear.weight, bf16_matrix(checkpoint, name + ".weight", rows, cols));
  TRY_ASSIGN(linear.bias, bf16_vector(checkpoint, name + ".bias", rows));
  return linear;
}

Result<kernels::Mxfp4Experts> mxfp4_experts(const checkpoint::Checkpoint& checkpoint,
                                            const std::string& name, int experts, int rows,
                                            int cols) {
  kernels::Mxfp4Experts matrix{.experts = experts, .rows = rows, .cols = cols};
  const int64_t e = experts;
  const int64_t r = rows;
  const int64_t groups = cols / 32;
  TRY_ASSIGN(matrix.blocks, (find<uint8_t>(checkpoint, name + "_blocks", DType::kU8,
                                           std::array<int64_t, 4>{e, r, groups, 16})));
  TRY_ASSIGN(matrix.scales, (find<uint8_t>(checkpoint, name + "_scales", DType::kU8,
                                           std::array<int64_t, 3>{e, r, groups})));
  TRY_ASSIGN(matrix.bias, (find<kernels::Bf16>(checkpoint, name + "_bias", DType::kBf16,
                                               std::array<int64_t, 2>{e, r})));
  return matrix;
}

}  // namespace pelton::layers
