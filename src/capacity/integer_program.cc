#include "capacity/integer_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace pelton::capacity {
namespace {

// What rounding may break a row by, in parts of its largest factor.
constexpr double kSlip = 1e-7;

double largest_factor(const Row& row) {
  double largest = 0;
  for (const Term& term : row.terms) largest = std::max(largest, std::abs(term.factor));
  return largest;
}

// Factors of at most 1.
Row scaled(const Row& row) {
  const double largest = largest_factor(row);
  if (largest == 0) return row;
  Row result = row;
  result.at_least /= largest;
  for (Term& term : result.terms) term.factor /= largest;
  return result;
}

// What whole numbers must keep as well if they keep the row (Chvatal-Gomory): 0.7 x + 0.7 y >= 1 is
// x + y >= 2. Divided by each of its factors in turn; rows with a negative factor have none.
void add_cuts(const Row& row, std::vector<Row>& cuts) {
  std::set<double> divisors;
  constexpr size_t kDivisorsMax = 8;
  for (const Term& term : row.terms) {
    if (term.factor < 0) return;
    if (divisors.size() < kDivisorsMax) divisors.insert(term.factor);
  }
  for (const double divisor : divisors) {
    if (row.at_least <= 0 || divisor <= 0) continue;
    Row cut{.terms = {}, .at_least = std::ceil(row.at_least / divisor - kSlip)};
    for (const Term& term : row.terms) {
      cut.terms.push_back({term.column, std::ceil(term.factor / divisor - kSlip)});
    }
    cuts.push_back(scaled(cut));
  }
}

bool holds(const Row& row, double activity) {
  return activity >= row.at_least - kSlip;
}

// One search. Rows enter a dictionary when its optimum breaks them.
class Search {
 public:
  Search(const IntegerProgram& program, int nodes_max) : program_(program), nodes_left_(nodes_max) {
    for (const Row& row : program.rows) rows_.push_back(scaled(row));
    row_count_ = rows_.size();
    for (size_t i = 0; i < row_count_; ++i) add_cuts(scaled(program.rows[i]), rows_);
    open_bound_ = std::numeric_limits<double>::infinity();
    best_ = std::numeric_limits<double>::infinity();
  }

  LinearDictionary::State optimise(LinearDictionary& dictionary) const {
    for (;;) {
      const LinearDictionary::State state = dictionary.optimise();
      if (state != LinearDictionary::State::kOptimal) return state;
      const std::vector<double> values = dictionary.values();
      bool added = false;
      for (size_t i = 0; i < rows_.size(); ++i) {
        if (holds(rows_[i], rows_[i].activity(values))) continue;
        dictionary.add(rows_[i], static_cast<int>(i));
        added = true;
      }
      if (!added) return state;
    }
  }

  void explore(LinearDictionary dictionary, int depth) {
    constexpr int kDepthMax = 400;
    if (nodes_left_ <= 0 || depth > kDepthMax) return leave(dictionary);
    --nodes_left_;
    const LinearDictionary::State state = optimise(dictionary);
    if (state == LinearDictionary::State::kImpossible) return;
    if (state == LinearDictionary::State::kTooManyPivots) return leave(dictionary);
    if (dictionary.cost() >= best_ - 1e-9 * (1 + best_)) return;
    const std::vector<double> values = dictionary.values();
    try_rounding(values);
    const int column = branching_column(values);
    if (column < 0) return;
    const double value = values[static_cast<size_t>(column)];
    LinearDictionary more = dictionary;
    more.add({.terms = {{column, 1}}, .at_least = std::ceil(value)}, -1);
    explore(std::move(more), depth + 1);
    dictionary.add({.terms = {{column, -1}}, .at_least = -std::floor(value)}, -1);
    explore(std::move(dictionary), depth + 1);
  }

  IntegerAnswer answer() const {
    IntegerAnswer answer;
    answer.bound = std::min(open_bound_, best_);
    if (best_values_.empty()) {
      answer.state = std::isinf(open_bound_) ? IntegerAnswer::State::kImpossible
                                             : IntegerAnswer::State::kNotFound;
      return answer;
    }
    answer.state = IntegerAnswer::State::kFound;
    answer.values = best_values_;
    answer.cost = best_;
    return answer;
  }
  // By the program's rows, scaled back.
  std::vector<double> duals(const LinearDictionary& dictionary) const {
    std::vector<double> duals = dictionary.duals(row_count_);
    for (size_t i = 0; i < row_count_; ++i) {
      const double largest = largest_factor(program_.rows[i]);
      if (largest > 0) duals[i] /= largest;
    }
    return duals;
  }

 private:
  // Not looked into: what is in there costs no less.
  void leave(const LinearDictionary& dictionary) {
    open_bound_ = std::min(open_bound_, dictionary.cost());
  }

  // The one that is furthest from whole; -1: all are whole.
  static int branching_column(const std::vector<double>& values) {
    int column = -1;
    double furthest = 1e-6;
    for (size_t i = 0; i < values.size(); ++i) {
      const double off = std::abs(values[i] - std::round(values[i]));
      if (off <= furthest) continue;
      furthest = off;
      column = static_cast<int>(i);
    }
    return column;
  }

  void try_rounding(const std::vector<double>& values) {
    std::vector<int> up(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      up[i] = static_cast<int>(std::ceil(values[i] - 1e-6));
    if (!keeps_rows(program_, up)) return;
    double cost = 0;
    for (size_t i = 0; i < up.size(); ++i) cost += program_.costs[i] * up[i];
    if (cost >= best_) return;
    best_ = cost;
    best_values_ = std::move(up);
  }

  const IntegerProgram& program_;
  std::vector<Row> rows_;  // the program's, scaled, and cuts behind them
  size_t row_count_ = 0;   // of the program
  int nodes_left_;
  double open_bound_ = 0;  // the least of what was not looked into
  double best_ = 0;
  std::vector<int> best_values_;
};

}  // namespace

bool keeps_rows(const IntegerProgram& program, const std::vector<int>& values) {
  return std::ranges::all_of(program.rows, [&](const Row& row) {
    double sum = 0;
    for (const Term& term : row.terms)
      sum += term.factor * values[static_cast<size_t>(term.column)];
    return sum >= row.at_least - kSlip * std::max(largest_factor(row), 1e-300);
  });
}

RelaxedAnswer solve_relaxed(const IntegerProgram& program) {
  const Search search(program, 0);
  LinearDictionary dictionary(program.costs);
  RelaxedAnswer answer;
  answer.state = search.optimise(dictionary);
  answer.cost = dictionary.cost();
  answer.values = dictionary.values();
  answer.duals = search.duals(dictionary);
  return answer;
}

IntegerAnswer solve_exactly(const IntegerProgram& program, int nodes_max) {
  Search search(program, nodes_max);
  search.explore(LinearDictionary(program.costs), 0);
  return search.answer();
}

}  // namespace pelton::capacity
