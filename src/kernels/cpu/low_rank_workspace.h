// Working memory of adapters' products, and which rows go through which of them. Compiled for any
// processor, as StepWorkspace is and for the same reason. Owned by the kernels; their thread.
//
// The rows that adapters add to lie in places 0, 1, ...: one product's behind another's. Of two
// adapters of rank 8, the first for the rows 0 and 2 of a step, the second for row 5: the product 0
// has the places 0 and 1, the product 1 the place 2; factors are (places, 8).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace pelton::kernels {

class LowRankWorkspace {
 public:
  // A x of one matrix A and the places [begin, begin + count).
  struct Product {
    LowRank matrix;
    int begin = 0;
    int count = 0;
    float* factors = nullptr;  // scale * A x: (places, rank_stride)
  };
  // A part of a product that one thread does: places and ranks from these on, so many at most.
  static constexpr int kTaskPlaces = 48;
  static constexpr int kTaskRanks = 8;
  struct Task {
    int product = 0;
    int place = 0;
    int rank = 0;
  };

  void reserve(const StepCapacity& shape);
  int64_t bytes() const;

  // x: float (tokens, cols)
  void plan_rows(const float* x, const AdaptedRows* groups, int group_count);

  // Assignments whose token has an adapter get places: by expert, within one by adapter.
  void group_experts(const ExpertChoice* choices, int tokens, int k,
                     const ExpertLowRank* const* adapters, int64_t inner);
  // Then the products with A of gate and up, of x, float (tokens, hidden); or with that of down, of
  // activations().
  void plan_gate_and_up(const float* x, int64_t hidden);
  void plan_down();

  const std::vector<Product>& products() const { return products_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  const float* const* inputs() const { return inputs_.data(); }  // (places)
  int place_count() const { return place_count_; }
  int rank_stride() const { return rank_stride_; }

  // Of plan_rows: the row that stands at a place, and whose product it is.
  int row_at(int place) const { return rows_[place]; }
  const Product& product_at(int place) const { return products_[product_of_place_[place]]; }

  // Of group_experts: -1 without an adapter.
  int place_of(int64_t assignment) const { return place_of_assignment_[assignment]; }
  const ExpertLowRank& adapter_at(int place) const { return *entries_[place].adapter; }
  int expert_at(int place) const { return entries_[place].expert; }
  float* activations_at(int place) { return activations_.data() + place * inner_; }
  const float* gate_factors(int place) const { return factors_[0].data() + at(place); }
  const float* up_factors(int place) const {
    return factors_[adapter_at(place).up.a == adapter_at(place).gate.a ? 0 : 1].data() + at(place);
  }
  const float* down_factors(int place) const { return factors_[2].data() + at(place); }

 private:
  struct Entry {
    int expert = 0;
    const ExpertLowRank* adapter = nullptr;
    int assignment = 0;
  };

  void clear_products();
  void add_product(const LowRank& matrix, int begin, int count, float* factors);
  // add(expert, adapter, begin, count) for each run of places of one expert and adapter.
  template <typename Add>
  void for_each_run(const Add& add) const;
  int64_t at(int place) const { return int64_t{place} * rank_stride_; }
  float* factors(int which);

  std::vector<Product> products_;
  std::vector<Task> tasks_;
  std::vector<const float*> inputs_;
  std::vector<float> factors_[3];
  std::vector<int> rows_;
  std::vector<int> product_of_place_;
  std::vector<Entry> entries_;
  std::vector<int> place_of_assignment_;
  std::vector<float> activations_;  // (places, inner)
  int place_count_ = 0;
  int rank_stride_ = 0;
  int k_ = 1;
  int64_t inner_ = 0;
};

}  // namespace pelton::kernels
