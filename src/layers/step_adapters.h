// Which rows of a step have a LoRA adapter, and what a layer's products add for them: rows grouped
// by adapter, in the order in which adapters first appear. Base rows are in no group. Owned by the
// model, filled anew for each step; executor thread.
//
// Of a step of three sequences, two rows of adapter X, one of the base, one of X, one of Y: the
// groups are X with the rows 0 1 3, and Y with row 4.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "lora/adapter.h"

namespace pelton::layers {

class StepAdapters {
 public:
  // Working memory for steps of so many tokens, exactly.
  void reserve(int tokens);
  int64_t bytes() const;

  // The next rows of the step; null: the base's.
  void begin(int tokens);
  void add_rows(const lora::Adapter* adapter, int count);
  void end();

  bool empty() const { return groups_.empty(); }

  // out += what adapters add to that matrix of that layer; x is the matrix' input. out: float
  // (tokens, rows) with row stride `stride`.
  void add(kernels::Kernels& kernels, int layer, lora::Linear linear, float* out, int64_t stride,
           const float* x);
  // (tokens) of what adds to a layer's experts; null: nothing does. Good until the next call.
  const kernels::ExpertLowRank* const* experts(int layer);

 private:
  struct Group {
    const lora::Adapter* adapter = nullptr;
    int begin = 0;  // into rows_
    int count = 0;
  };

  std::vector<const lora::Adapter*> adapter_of_row_;  // (tokens)
  std::vector<Group> groups_;
  std::vector<int32_t> rows_;                           // by group
  std::vector<kernels::AdaptedRows> adapted_;           // of one product
  std::vector<const kernels::ExpertLowRank*> experts_;  // (tokens)
};

// What one layer sees of them.
class LayerAdapters {
 public:
  LayerAdapters() = default;  // none
  LayerAdapters(StepAdapters& step, int layer) : step_(&step), layer_(layer) {}

  void add(kernels::Kernels& kernels, lora::Linear linear, float* out, int64_t stride,
           const float* x) const {
    if (step_ != nullptr) step_->add(kernels, layer_, linear, out, stride, x);
  }
  const kernels::ExpertLowRank* const* experts() const {
    return step_ == nullptr ? nullptr : step_->experts(layer_);
  }

 private:
  StepAdapters* step_ = nullptr;
  int layer_ = 0;
};

}  // namespace pelton::layers
