// A model whose logits and states are what the test says, for tests of the executor's units. Tests
// only.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "executor/step_model.h"

namespace pelton::executor {

class FakeStepModel final : public StepModel {
 public:
  using RowOf = std::function<std::vector<float>(int row)>;  // of the step

  // Gives both a few rows at a time, as models do.
  RowOf logits;
  RowOf states;
  std::optional<Error> error;

  std::string_view kernels_name() const override { return "fake"; }
  const cost_model::Footprint& footprint() const override { return footprint_; }
  Result<void> copy_blocks(const std::vector<engine::BlockCopy>&) override { return {}; }
  void begin(const models::ForwardInput&, sampling::DeviceRows*, models::HiddenTap*) override {}
  Result<float*> finish() override { return nullptr; }

  Result<void> normed_rows(
      std::span<const int> rows,
      base::FunctionRef<void(size_t index, const float* state)> sees) override {
    if (error) return *error;
    for (size_t i = 0; i < rows.size(); ++i) sees(i, states(rows[i]).data());
    return {};
  }

  Result<void> logits_of(
      std::span<const int> rows,
      base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) override {
    if (error) return *error;
    constexpr size_t kAtATime = 2;
    for (size_t first = 0; first < rows.size(); first += kAtATime) {
      const size_t count = std::min(kAtATime, rows.size() - first);
      std::vector<float> flat;
      for (size_t i = 0; i < count; ++i) {
        const std::vector<float> row = logits(rows[first + i]);
        flat.insert(flat.end(), row.begin(), row.end());
      }
      sees(first, flat.data(), count);
    }
    return {};
  }

 private:
  cost_model::Footprint footprint_;
};

}  // namespace pelton::executor
