#include "capacity/linear_dictionary.h"

#include <cmath>
#include <limits>

namespace pelton::capacity {
namespace {

// Rows come scaled to factors of about 1, so one figure does for all.
constexpr double kNegative = 1e-9;
constexpr double kFactorMin = 1e-9;
constexpr int kPivotsMax = 20'000;
// From then on the first of equals enters, which cannot cycle (Bland).
constexpr int kPivotsBeforeBland = 2'000;

}  // namespace

double Row::activity(const std::vector<double>& values) const {
  double sum = 0;
  for (const Term& term : terms) sum += term.factor * values[static_cast<size_t>(term.column)];
  return sum;
}

LinearDictionary::LinearDictionary(const std::vector<double>& costs)
    : columns_(costs.size()), nonbasic_(columns_), where_(columns_), reduced_(costs) {
  for (size_t i = 0; i < columns_; ++i) nonbasic_[i] = where_[i] = static_cast<int>(i);
}

void LinearDictionary::add(const Row& row, int mark) {
  BasicRow added{.variable = static_cast<int>(columns_ + marks_.size()),
                 .constant = -row.at_least,
                 .factors = std::vector<double>(columns_, 0.0)};
  for (const Term& term : row.terms) {
    const int where = where_[static_cast<size_t>(term.column)];
    if (where >= 0) {
      added.factors[static_cast<size_t>(where)] += term.factor;
      continue;
    }
    const BasicRow& basic = rows_[static_cast<size_t>(-1 - where)];
    added.constant += term.factor * basic.constant;
    for (size_t k = 0; k < columns_; ++k) added.factors[k] += term.factor * basic.factors[k];
  }
  marks_.push_back(mark);
  rows_.push_back(std::move(added));
}

int LinearDictionary::most_negative_row() const {
  int worst = -1;
  double least = -kNegative;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].constant >= least) continue;
    least = rows_[i].constant;
    worst = static_cast<int>(i);
  }
  return worst;
}

int LinearDictionary::entering_column(const BasicRow& row, bool first_of_equals) const {
  int best = -1;
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < columns_; ++k) {
    const double factor = row.factors[k];
    if (factor <= kFactorMin) continue;
    const double ratio = reduced_[k] / factor;
    const bool is_equal = best >= 0 && std::abs(ratio - least) <= 1e-12 * (1 + least);
    const bool wins = is_equal
                          ? (first_of_equals ? nonbasic_[k] < nonbasic_[static_cast<size_t>(best)]
                                             : factor > row.factors[static_cast<size_t>(best)])
                          : ratio < least;
    if (!wins) continue;
    least = ratio;
    best = static_cast<int>(k);
  }
  return best;
}

void LinearDictionary::pivot(size_t row, size_t column) {
  BasicRow& leaving = rows_[row];
  const double inverse = 1 / leaving.factors[column];
  for (double& factor : leaving.factors) factor *= -inverse;
  leaving.factors[column] = inverse;
  leaving.constant *= -inverse;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const double weight = rows_[i].factors[column];
    if (i == row || weight == 0) continue;
    BasicRow& other = rows_[i];
    other.factors[column] = 0;
    other.constant += weight * leaving.constant;
    for (size_t k = 0; k < columns_; ++k) other.factors[k] += weight * leaving.factors[k];
  }
  const double weight = reduced_[column];
  cost_ += weight * leaving.constant;
  reduced_[column] = 0;
  for (size_t k = 0; k < columns_; ++k) {
    reduced_[k] = std::max(0.0, reduced_[k] + weight * leaving.factors[k]);
  }
  std::swap(leaving.variable, nonbasic_[column]);
  if (static_cast<size_t>(leaving.variable) < columns_) {
    where_[static_cast<size_t>(leaving.variable)] = -1 - static_cast<int>(row);
  }
  if (static_cast<size_t>(nonbasic_[column]) < columns_) {
    where_[static_cast<size_t>(nonbasic_[column])] = static_cast<int>(column);
  }
}

LinearDictionary::State LinearDictionary::optimise() {
  for (int pivots = 0; pivots < kPivotsMax; ++pivots) {
    const int row = most_negative_row();
    if (row < 0) return State::kOptimal;
    const int column =
        entering_column(rows_[static_cast<size_t>(row)], pivots >= kPivotsBeforeBland);
    if (column < 0) return State::kImpossible;
    pivot(static_cast<size_t>(row), static_cast<size_t>(column));
  }
  return State::kTooManyPivots;
}

std::vector<double> LinearDictionary::values() const {
  std::vector<double> values(columns_, 0.0);
  for (const BasicRow& row : rows_) {
    if (static_cast<size_t>(row.variable) < columns_) {
      values[static_cast<size_t>(row.variable)] = std::max(0.0, row.constant);
    }
  }
  return values;
}

std::vector<double> LinearDictionary::duals(size_t marks) const {
  std::vector<double> duals(marks, 0.0);
  for (size_t k = 0; k < columns_; ++k) {
    const auto variable = static_cast<size_t>(nonbasic_[k]);
    if (variable < columns_) continue;
    const int mark = marks_[variable - columns_];
    if (mark >= 0 && static_cast<size_t>(mark) < marks) {
      duals[static_cast<size_t>(mark)] = reduced_[k];
    }
  }
  return duals;
}

}  // namespace pelton::capacity
