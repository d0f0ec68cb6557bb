// solve_by_groups() of integer_program.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "capacity/integer_program.h"

namespace pelton::capacity {
namespace {

// Nodes of one group's branch and bound: some milliseconds at 50 columns.
constexpr int kGroupNodes = 120;
// Of the whole program, where group by group finds nothing.
constexpr int kWholeNodes = 300;
// From here on improving is not worth its time.
constexpr double kGapWanted = 0.002;

double cost_of(const IntegerProgram& program, const std::vector<int>& values) {
  double cost = 0;
  for (size_t i = 0; i < values.size(); ++i) cost += program.costs[i] * values[i];
  return cost;
}

// The program as groups, and what its rows still have to give.
class Groups {
 public:
  explicit Groups(const IntegerProgram& program) : program_(program) {
    for (size_t i = 0; i < program.costs.size(); ++i) {
      const auto group = static_cast<size_t>(program.groups[i]);
      if (columns_.size() <= group) columns_.resize(group + 1);
      columns_[group].push_back(static_cast<int>(i));
    }
    rows_.resize(columns_.size());
    local_.resize(program.costs.size());
    for (const std::vector<int>& columns : columns_) {
      for (size_t k = 0; k < columns.size(); ++k) {
        local_[static_cast<size_t>(columns[k])] = static_cast<int>(k);
      }
    }
    for (size_t r = 0; r < program.rows.size(); ++r) {
      std::vector<size_t> groups;
      for (const Term& term : program.rows[r].terms) groups.push_back(group_of(term.column));
      std::ranges::sort(groups);
      groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
      if (groups.size() > 1) shared_.push_back(r);
      for (const size_t group : groups) rows_[group].push_back(r);
    }
  }

  size_t size() const { return columns_.size(); }
  const std::vector<size_t>& shared_rows() const { return shared_; }

  // That group alone, with what the others leave of the shared rows.
  IntegerProgram part(size_t group, const std::vector<double>& costs,
                      const std::vector<int>& others) const {
    IntegerProgram part;
    for (const int column : columns_[group]) {
      part.costs.push_back(costs[static_cast<size_t>(column)]);
    }
    for (const size_t r : rows_[group]) {
      Row row{.terms = {}, .at_least = program_.rows[r].at_least};
      for (const Term& term : program_.rows[r].terms) {
        if (group_of(term.column) == group) {
          row.terms.push_back({local_[static_cast<size_t>(term.column)], term.factor});
        } else {
          row.at_least -= term.factor * others[static_cast<size_t>(term.column)];
        }
      }
      part.rows.push_back(std::move(row));
    }
    return part;
  }
  void put(size_t group, const std::vector<int>& from, std::vector<int>& values) const {
    for (size_t k = 0; k < from.size(); ++k) {
      values[static_cast<size_t>(columns_[group][k])] = from[k];
    }
  }

 private:
  size_t group_of(int column) const {
    return static_cast<size_t>(program_.groups[static_cast<size_t>(column)]);
  }

  const IntegerProgram& program_;
  std::vector<std::vector<int>> columns_;  // of each group
  std::vector<std::vector<size_t>> rows_;  // that have a column of it
  std::vector<int> local_;                 // of each column, its place in its group
  std::vector<size_t> shared_;             // rows of several groups
};

// The best whole numbers so far.
struct Best {
  std::vector<int> values;
  double cost = std::numeric_limits<double>::infinity();

  void offer(const IntegerProgram& program, const std::vector<int>& candidate) {
    const double its = cost_of(program, candidate);
    if (its >= cost || !keeps_rows(program, candidate)) return;
    values = candidate;
    cost = its;
  }
};

// One group after the other, each with what those before it left. A group for which too little is
// left goes first the next time.
std::optional<std::vector<int>> in_turn(const IntegerProgram& program, const Groups& groups,
                                        const std::vector<double>& costs) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t attempt = 0; attempt < groups.size(); ++attempt) {
    std::vector<int> values(program.costs.size(), 0);
    size_t failed = order.size();
    for (size_t k = 0; k < order.size() && failed == order.size(); ++k) {
      const IntegerAnswer answer = solve_exactly(groups.part(order[k], costs, values), kGroupNodes);
      if (answer.state != IntegerAnswer::State::kFound) failed = k;
      groups.put(order[k], answer.values, values);
    }
    if (failed == order.size()) return values;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(failed),
                order.begin() + static_cast<std::ptrdiff_t>(failed) + 1);
  }
  return std::nullopt;
}

// One replica fewer, or another one instead, where that is cheaper and keeps every row.
class Exchange {
 public:
  Exchange(const IntegerProgram& program, std::vector<int>& values)
      : program_(program), values_(values), rows_of_(values.size()), slack_(program.rows.size()) {
    for (size_t r = 0; r < program.rows.size(); ++r) {
      slack_[r] = -program.rows[r].at_least;
      double largest = 0;
      for (const Term& term : program.rows[r].terms) {
        slack_[r] += term.factor * values[static_cast<size_t>(term.column)];
        largest = std::max(largest, std::abs(term.factor));
        rows_of_[static_cast<size_t>(term.column)].push_back({r, term.factor});
      }
      slack_[r] += 1e-9 * largest;
    }
  }

  void run() {
    constexpr int kRoundsMax = 20;
    for (int round = 0; round < kRoundsMax; ++round) {
      bool changed = false;
      for (size_t from = 0; from < values_.size(); ++from) {
        while (values_[from] > 0 && improve(from)) changed = true;
      }
      if (!changed) return;
    }
  }

 private:
  struct Factor {
    size_t row;
    double factor;
  };
  // The best that one replica of `from` can be exchanged for.
  bool improve(size_t from) {
    change(from, -1);
    if (keeps()) return true;
    size_t best = from;
    for (size_t to = 0; to < values_.size(); ++to) {
      if (program_.costs[to] >= program_.costs[best] - 1e-9) continue;
      change(to, 1);
      if (keeps()) best = to;
      change(to, -1);
    }
    change(best, 1);
    return best != from;
  }
  void change(size_t column, int by) {
    values_[column] += by;
    for (const Factor& one : rows_of_[column]) {
      const bool was_broken = slack_[one.row] < 0;
      slack_[one.row] += by * one.factor;
      broken_ += static_cast<int>(slack_[one.row] < 0) - static_cast<int>(was_broken);
    }
  }
  bool keeps() const { return broken_ == 0; }

  const IntegerProgram& program_;
  std::vector<int>& values_;
  std::vector<std::vector<Factor>> rows_of_;
  std::vector<double> slack_;  // by how much each row is kept
  int broken_ = 0;
};

// Each group anew, beside what the others have.
void improve_groups(const IntegerProgram& program, const Groups& groups, Best& best) {
  for (size_t group = 0; group < groups.size(); ++group) {
    const IntegerAnswer answer =
        solve_exactly(groups.part(group, program.costs, best.values), kGroupNodes);
    if (answer.state != IntegerAnswer::State::kFound) continue;
    std::vector<int> candidate = best.values;
    groups.put(group, answer.values, candidate);
    best.offer(program, candidate);
  }
}

void improve(const IntegerProgram& program, const Groups& groups, double bound, Best& best) {
  constexpr int kRoundsMax = 4;
  for (int round = 0; round < kRoundsMax; ++round) {
    if (best.cost - bound <= kGapWanted * best.cost) return;
    const double before = best.cost;
    std::vector<int> exchanged = best.values;
    Exchange(program, exchanged).run();
    best.offer(program, exchanged);
    improve_groups(program, groups, best);
    if (best.cost >= before - 1e-9) return;
  }
}

// The costs with the price of what is shared: it is dearer to use what others want as well.
std::vector<double> priced_costs(const IntegerProgram& program, const Groups& groups,
                                 const RelaxedAnswer& relaxed) {
  std::vector<double> costs = program.costs;
  for (const size_t row : groups.shared_rows()) {
    for (const Term& term : program.rows[row].terms) {
      double& cost = costs[static_cast<size_t>(term.column)];
      cost = std::max(0.0, cost - relaxed.duals[row] * term.factor);
    }
  }
  return costs;
}

}  // namespace

IntegerAnswer solve_by_groups(const IntegerProgram& program) {
  const RelaxedAnswer relaxed = solve_relaxed(program);
  IntegerAnswer result;
  if (relaxed.state == LinearDictionary::State::kImpossible) {
    result.state = IntegerAnswer::State::kImpossible;
    return result;
  }
  const Groups groups(program);
  const std::vector<double> costs = priced_costs(program, groups, relaxed);
  const std::vector<int> none(program.costs.size(), 0);
  std::vector<int> together = none;
  // Lagrange: with any prices for the shared rows, the groups' optima less what the rows are worth
  // are a bound.
  double bound = 0;
  for (const size_t row : groups.shared_rows()) {
    bound += relaxed.duals[row] * program.rows[row].at_least;
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    const IntegerAnswer answer = solve_exactly(groups.part(group, costs, none), kGroupNodes);
    if (answer.state == IntegerAnswer::State::kImpossible) {
      result.state = answer.state;  // even with all that is shared for itself
      return result;
    }
    bound += answer.bound;
    if (answer.state == IntegerAnswer::State::kFound) groups.put(group, answer.values, together);
  }
  result.bound = std::max(bound, relaxed.cost);
  Best best;
  best.offer(program, together);
  if (best.values.empty()) {
    if (const auto values = in_turn(program, groups, costs)) best.offer(program, *values);
    if (const auto values = in_turn(program, groups, program.costs)) best.offer(program, *values);
  }
  if (best.values.empty()) {
    const IntegerAnswer whole = solve_exactly(program, kWholeNodes);
    if (whole.state != IntegerAnswer::State::kFound) return whole;
    best.offer(program, whole.values);
  }
  improve(program, groups, result.bound, best);
  result.state = IntegerAnswer::State::kFound;
  result.values = std::move(best.values);
  result.cost = best.cost;
  result.bound = std::min(result.bound, best.cost);
  return result;
}

}  // namespace pelton::capacity
