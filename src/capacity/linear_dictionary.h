// A linear program, minimise costs * x with rows a * x >= b and x >= 0, kept at its optimum while
// rows are added: the dual simplex method on a dictionary (Chvatal, Linear Programming, ch. 2 and
// 10). Costs must not be negative, so that x = 0 without rows is dual feasible and no first phase
// is needed; each row then costs some pivots. Rows stay few, as callers add only those that the
// last optimum breaks. A value; one owner.
#pragma once

#include <cstddef>
#include <vector>

namespace pelton::capacity {

struct Term {
  int column = 0;
  double factor = 0;
};

struct Row {  // sum of factor * x[column] >= at_least
  std::vector<Term> terms;
  double at_least = 0;

  double activity(const std::vector<double>& values) const;
};

class LinearDictionary {
 public:
  explicit LinearDictionary(const std::vector<double>& costs);

  // `mark` says which row it is in duals(); below 0: nobody asks.
  void add(const Row& row, int mark);
  enum class State { kOptimal, kImpossible, kTooManyPivots };
  // The optimum over the rows so far. Impossible means that these rows contradict each other.
  State optimise();
  // Of the last optimum; before that, a lower bound of it (weak duality holds at every pivot).
  double cost() const { return cost_; }
  std::vector<double> values() const;
  // What the cost gains per unit of a row's at_least, by mark; rows that were not added have 0.
  std::vector<double> duals(size_t marks) const;

 private:
  // x of a basic variable = its constant + the sum of factors * nonbasic variables.
  struct BasicRow {
    int variable = 0;
    double constant = 0;
    std::vector<double> factors;
  };
  void pivot(size_t row, size_t column);
  int most_negative_row() const;
  int entering_column(const BasicRow& row, bool first_of_equals) const;

  const size_t columns_;
  std::vector<int> nonbasic_;    // the variable at each position; columns first, then slacks
  std::vector<int> where_;       // of a column: its position, or -1 - its row
  std::vector<double> reduced_;  // costs of the nonbasic ones, never negative
  std::vector<BasicRow> rows_;
  std::vector<int> marks_;  // of slack i
  double cost_ = 0;
};

}  // namespace pelton::capacity
