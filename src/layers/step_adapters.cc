#include "layers/step_adapters.h"

#include <algorithm>

#include "base/check.h"

namespace pelton::layers {
namespace {

template <typename T>
int64_t capacity_bytes(const std::vector<T>& vector) {
  return static_cast<int64_t>(vector.capacity() * sizeof(T));
}

}  // namespace

void StepAdapters::reserve(int tokens) {
  const auto count = static_cast<size_t>(tokens);
  adapter_of_row_.reserve(count);
  groups_.reserve(count);
  rows_.reserve(count);
  adapted_.reserve(count);
  experts_.reserve(count);
}

int64_t StepAdapters::bytes() const {
  return capacity_bytes(adapter_of_row_) + capacity_bytes(groups_) + capacity_bytes(rows_) +
         capacity_bytes(adapted_) + capacity_bytes(experts_);
}

void StepAdapters::begin(int tokens) {
  adapter_of_row_.clear();
  groups_.clear();
  rows_.resize(static_cast<size_t>(tokens));
}

void StepAdapters::add_rows(const lora::Adapter* adapter, int count) {
  adapter_of_row_.insert(adapter_of_row_.end(), static_cast<size_t>(count), adapter);
  if (adapter == nullptr) return;
  const auto group = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& of) { return of.adapter == adapter; });
  if (group != groups_.end()) {
    group->count += count;
  } else {
    groups_.push_back({.adapter = adapter, .count = count});
  }
}

// Counts are known: each group gets its place, and rows go there in order.
void StepAdapters::end() {
  CHECK(adapter_of_row_.size() == rows_.size());
  int begin = 0;
  for (Group& group : groups_) {
    group.begin = begin;
    for (size_t row = 0; row < adapter_of_row_.size(); ++row) {
      if (adapter_of_row_[row] == group.adapter) rows_[begin++] = static_cast<int32_t>(row);
    }
    CHECK(begin == group.begin + group.count);
  }
}

void StepAdapters::add(kernels::Kernels& kernels, int layer, lora::Linear linear, float* out,
                       int64_t stride, const float* x) {
  adapted_.clear();
  for (const Group& group : groups_) {
    const kernels::LowRank& matrix =
        group.adapter->layer(layer).linear[static_cast<size_t>(linear)];
    if (!matrix.adds()) continue;
    adapted_.push_back(
        {.adapter = &matrix, .rows = rows_.data() + group.begin, .count = group.count});
  }
  if (adapted_.empty()) return;
  kernels.add_low_rank(out, stride, x, adapted_.data(), static_cast<int>(adapted_.size()));
}

const kernels::ExpertLowRank* const* StepAdapters::experts(int layer) {
  bool any = false;
  experts_.assign(adapter_of_row_.size(), nullptr);
  for (const Group& group : groups_) {
    const kernels::ExpertLowRank& experts = group.adapter->layer(layer).experts;
    if (!experts.adds()) continue;
    any = true;
    for (int i = 0; i < group.count; ++i) experts_[rows_[group.begin + i]] = &experts;
  }
  return any ? experts_.data() : nullptr;
}

}  // namespace pelton::layers
