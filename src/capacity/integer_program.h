// The least cost with which whole numbers keep rows of sums: exactly by branch and bound where that
// ends within the nodes given, else the best found with a bound of what is possible at all.
// Pure functions; the same program has the same answer.
#pragma once

#include <cstddef>
#include <vector>

#include "capacity/linear_dictionary.h"

namespace pelton::capacity {

struct IntegerProgram {
  std::vector<double> costs;  // of each column, not negative
  std::vector<Row> rows;
  // Of each column: which of the groups that share nothing but some rows (a model's replicas share
  // machines with another model's). Empty: all are of one.
  std::vector<int> groups;
};

struct IntegerAnswer {
  enum class State {
    kFound,
    kImpossible,  // proven: no whole numbers keep all rows
    kNotFound,    // none was found within the nodes
  };
  State state = State::kNotFound;
  std::vector<int> values;
  double cost = 0;
  double bound = 0;  // nothing is cheaper
  bool is_exact() const { return state == State::kFound && bound >= cost - 1e-7 * (1 + cost); }
};

// Whether all rows hold, but for what is rounding.
bool keeps_rows(const IntegerProgram& program, const std::vector<int>& values);

// The optimum in fractions.
struct RelaxedAnswer {
  LinearDictionary::State state = LinearDictionary::State::kImpossible;
  double cost = 0;
  std::vector<double> values;
  std::vector<double> duals;  // of each row: what one more of its at_least costs
};
RelaxedAnswer solve_relaxed(const IntegerProgram& program);

// Branch and bound over the whole program.
IntegerAnswer solve_exactly(const IntegerProgram& program, int nodes_max);

// Group by group at prices for what they share (a Lagrangian bound), then repaired, and improved by
// exchanging one replica for another and one group's plan at a time. For many columns.
IntegerAnswer solve_by_groups(const IntegerProgram& program);

}  // namespace pelton::capacity
