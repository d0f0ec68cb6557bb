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

void ExpertGroups::group(const ExpertChoice* choices, int tokens, int k, int experts,
                         RowExchange* dealt) {
  const int count = tokens * k;
  const int32_t* const places = dealt != nullptr ? dealt->places(choices, count) : nullptr;
  const auto place_of = [&](int i) { return places != nullptr ? places[i] : choices[i].expert; };
  counts_.assign(static_cast<size_t>(experts) + 1, 0);
  for (int i = 0; i < count; ++i) {
    if (place_of(i) >= 0) ++counts_[place_of(i) + 1];
  }
  active_.clear();
  for (int e = 0; e < experts; ++e) {
    if (counts_[e + 1] > 0) active_.push_back({e, counts_[e], counts_[e + 1]});
    counts_[e + 1] += counts_[e];
  }
  assignments_.resize(static_cast<size_t>(counts_[experts]));
  for (int i = 0; i < count; ++i) {
    if (place_of(i) >= 0) assignments_[counts_[place_of(i)]++] = i;
  }
}

}  // namespace pelton::kernels
