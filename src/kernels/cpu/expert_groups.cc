#include "kernels/cpu/expert_groups.h"

namespace pelton::kernels {

void ExpertGroups::reserve(const StepCapacity& shape) {
  counts_.reserve(static_cast<size_t>(shape.experts) + 1);
  assignments_.reserve(static_cast<size_t>(shape.tokens) *
                       static_cast<size_t>(shape.experts_per_token));
  active_.reserve(static_cast<size_t>(shape.experts));
}

int64_t ExpertGroups::bytes() const {
  return static_cast<int64_t>((counts_.capacity() + assignments_.capacity()) * sizeof(int) +
                              active_.capacity() * sizeof(ActiveExpert));
}

void ExpertGroups::group(const ExpertChoice* choices, int tokens, int k, int experts) {
  const int count = tokens * k;
  counts_.assign(static_cast<size_t>(experts) + 1, 0);
  for (int i = 0; i < count; ++i) ++counts_[choices[i].expert + 1];
  active_.clear();
  for (int e = 0; e < experts; ++e) {
    if (counts_[e + 1] > 0) active_.push_back({e, counts_[e], counts_[e + 1]});
    counts_[e + 1] += counts_[e];
  }
  assignments_.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) assignments_[counts_[choices[i].expert]++] = i;
}

}  // namespace pelton::kernels
