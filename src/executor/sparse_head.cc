#include "executor/sparse_head.h"

#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "checkpoint/foreign_text.h"
#include "checkpoint/tensor_file.h"
#include "layers/weights.h"

namespace pelton::executor {
namespace {

constexpr const char* kWeight = "weight";
constexpr const char* kBias = "bias";

}  // namespace

Result<std::optional<SparseHead>> SparseHead::load(const std::string& folder, int hidden_size) {
  const std::string path = folder + "/sparse_linear.pt";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<SparseHead>();
  TRY_ASSIGN(const checkpoint::TensorFile file, checkpoint::TensorFile::open_torch(path));
  TRY_ASSIGN(const tensor::TensorView weight,
             file.tensor(kWeight, std::array<int64_t, 2>{1, hidden_size}));
  TRY_ASSIGN(const tensor::TensorView bias, file.tensor(kBias, std::array<int64_t, 1>{1}));
  for (const auto& [name, view] : file.tensors()) {
    if (name == kWeight || name == kBias) continue;
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: tensor {} is none of a sparse head, which is one product with its "
                    "bias",
                    path, checkpoint::shown(name))};
  }
  layers::FloatVectors vectors;
  TRY_ASSIGN(const float* weights,
             layers::vector_of(weight, fmt::format("{}: {}", path, kWeight), vectors));
  TRY_ASSIGN(const float* offset,
             layers::vector_of(bias, fmt::format("{}: {}", path, kBias), vectors));
  return std::optional(SparseHead({weights, weights + hidden_size}, *offset));
}

// In double and in order: one product of a token is nothing beside its layers.
float SparseHead::weight_of(std::span<const float> state) const {
  CHECK(state.size() == weight_.size());
  double sum = bias_;
  for (size_t i = 0; i < state.size(); ++i) sum += double{weight_[i]} * double{state[i]};
  return sum < 0.0 ? 0.0f : static_cast<float>(sum);
}

}  // namespace pelton::executor
