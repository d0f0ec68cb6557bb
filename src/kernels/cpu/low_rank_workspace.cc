#include "kernels/cpu/low_rank_workspace.h"

#include <algorithm>
#include <tuple>

namespace pelton::kernels {
namespace {

template <typename T>
int64_t capacity_bytes(const std::vector<T>& vector) {
  return static_cast<int64_t>(vector.capacity() * sizeof(T));
}

}  // namespace

void LowRankWorkspace::reserve(const StepCapacity& shape) {
  if (shape.adapter_rank == 0) return;
  const auto tokens = static_cast<size_t>(shape.tokens);
  const size_t assignments =
      shape.expert_adapters ? tokens * static_cast<size_t>(shape.experts_per_token) : 0;
  const size_t places = std::max(tokens, assignments);
  const auto rank = static_cast<size_t>(shape.adapter_rank);
  const size_t products = std::max(tokens, 2 * assignments);  // gate's and up's
  products_.reserve(products);
  tasks_.reserve(products * ((rank + kTaskRanks - 1) / kTaskRanks));
  inputs_.reserve(places);
  factors_[0].reserve(places * rank);
  rows_.reserve(tokens);
  product_of_place_.reserve(tokens);
  if (assignments == 0) return;
  factors_[1].reserve(places * rank);
  factors_[2].reserve(places * rank);
  entries_.reserve(assignments);
  place_of_assignment_.reserve(assignments);
  activations_.reserve(assignments * static_cast<size_t>(shape.inner));
}

int64_t LowRankWorkspace::bytes() const {
  return capacity_bytes(products_) + capacity_bytes(tasks_) + capacity_bytes(inputs_) +
         capacity_bytes(factors_[0]) + capacity_bytes(factors_[1]) + capacity_bytes(factors_[2]) +
         capacity_bytes(rows_) + capacity_bytes(product_of_place_) + capacity_bytes(entries_) +
         capacity_bytes(place_of_assignment_) + capacity_bytes(activations_);
}

void LowRankWorkspace::clear_products() {
  products_.clear();
  tasks_.clear();
  inputs_.clear();
}

void LowRankWorkspace::add_product(const LowRank& matrix, int begin, int count, float* factors) {
  const auto number = static_cast<int>(products_.size());
  products_.push_back({matrix, begin, count, factors});
  for (int place = begin; place < begin + count; place += kTaskPlaces) {
    for (int rank = 0; rank < matrix.rank; rank += kTaskRanks) {
      tasks_.push_back({number, place, rank});
    }
  }
}

float* LowRankWorkspace::factors(int which) {
  factors_[which].resize(static_cast<size_t>(place_count_) * static_cast<size_t>(rank_stride_));
  return factors_[which].data();
}

void LowRankWorkspace::plan_rows(const float* x, const AdaptedRows* groups, int group_count) {
  clear_products();
  rows_.clear();
  product_of_place_.clear();
  rank_stride_ = 0;
  place_count_ = 0;
  for (int g = 0; g < group_count; ++g) {
    rank_stride_ = std::max(rank_stride_, groups[g].adapter->rank);
    place_count_ += groups[g].count;
  }
  float* const to = factors(0);
  for (int g = 0; g < group_count; ++g) {
    const AdaptedRows& group = groups[g];
    const auto begin = static_cast<int>(rows_.size());
    for (int i = 0; i < group.count; ++i) {
      rows_.push_back(group.rows[i]);
      inputs_.push_back(x + int64_t{group.rows[i]} * group.adapter->cols);
      product_of_place_.push_back(g);
    }
    add_product(*group.adapter, begin, group.count, to);
  }
}

void LowRankWorkspace::group_experts(const ExpertChoice* choices, int tokens, int k,
                                     const ExpertLowRank* const* adapters, int64_t inner) {
  k_ = k;
  inner_ = inner;
  rank_stride_ = 0;
  entries_.clear();
  place_of_assignment_.assign(static_cast<size_t>(int64_t{tokens} * k), -1);
  for (int t = 0; t < tokens; ++t) {
    const ExpertLowRank* const adapter = adapters[t];
    if (adapter == nullptr || !adapter->adds()) continue;
    rank_stride_ =
        std::max({rank_stride_, adapter->gate.rank, adapter->up.rank, adapter->down.rank});
    for (int j = 0; j < k; ++j) entries_.push_back({choices[t * k + j].expert, adapter, t * k + j});
  }
  // Which adapter comes first does not matter: it decides who multiplies when, and no bit.
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.expert, a.adapter, a.assignment) <
           std::tuple(b.expert, b.adapter, b.assignment);
  });
  place_count_ = static_cast<int>(entries_.size());
  for (int place = 0; place < place_count_; ++place) {
    place_of_assignment_[entries_[place].assignment] = place;
  }
  activations_.resize(static_cast<size_t>(place_count_ * inner));
}

template <typename Add>
void LowRankWorkspace::for_each_run(const Add& add) const {
  for (int begin = 0; begin < place_count_;) {
    const Entry& first = entries_[begin];
    int end = begin + 1;
    while (end < place_count_ && entries_[end].expert == first.expert &&
           entries_[end].adapter == first.adapter) {
      ++end;
    }
    add(first.expert, *first.adapter, begin, end - begin);
    begin = end;
  }
}

void LowRankWorkspace::plan_gate_and_up(const float* x, int64_t hidden) {
  clear_products();
  for (const Entry& entry : entries_) inputs_.push_back(x + entry.assignment / k_ * hidden);
  float* const gates = factors(0);
  float* const ups = factors(1);
  for_each_run([&](int expert, const ExpertLowRank& adapter, int begin, int count) {
    if (adapter.gate.adds()) add_product(adapter.gate.of_expert(expert), begin, count, gates);
    if (adapter.up.adds() && adapter.up.a != adapter.gate.a) {
      add_product(adapter.up.of_expert(expert), begin, count, ups);
    }
  });
}

void LowRankWorkspace::plan_down() {
  clear_products();
  for (int place = 0; place < place_count_; ++place) inputs_.push_back(activations_at(place));
  float* const to = factors(2);
  for_each_run([&](int expert, const ExpertLowRank& adapter, int begin, int count) {
    if (adapter.down.adds()) add_product(adapter.down.of_expert(expert), begin, count, to);
  });
}

}  // namespace pelton::kernels
