#include "cost_model/least_squares.h"

#include <algorithm>
#include <cmath>

namespace pelton::cost_model {
namespace {

using Vector = std::vector<double>;

double loss(const LeastSquares& problem, const Vector& residuals) {
  double sum = 0;
  for (const double r : residuals) {
    const double size = std::abs(r);
    const bool is_outlier = problem.outlier > 0 && size > problem.outlier;
    sum += is_outlier ? problem.outlier * (2 * size - problem.outlier) : r * r;
  }
  return std::isfinite(sum) ? sum : 1e300;
}

double weight(const LeastSquares& problem, double residual) {
  const double size = std::abs(residual);
  return problem.outlier > 0 && size > problem.outlier ? problem.outlier / size : 1;
}

// Solves a x = b by Gauss with pivots; a is symmetric and made positive by the damping.
Vector solve(std::vector<Vector> a, Vector b) {
  const size_t n = b.size();
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < n; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    std::swap(a[column], a[pivot]);
    std::swap(b[column], b[pivot]);
    if (std::abs(a[column][column]) < 1e-300) continue;
    for (size_t row = column + 1; row < n; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (size_t k = column; k < n; ++k) a[row][k] -= factor * a[column][k];
      b[row] -= factor * b[column];
    }
  }
  Vector x(n, 0);
  for (size_t row = n; row-- > 0;) {
    double sum = b[row];
    for (size_t k = row + 1; k < n; ++k) sum -= a[row][k] * x[k];
    x[row] = std::abs(a[row][row]) < 1e-300 ? 0 : sum / a[row][row];
  }
  return x;
}

struct Normal {
  std::vector<Vector> matrix;
  Vector gradient;
};

Normal normal_equations(const LeastSquares& problem, const Vector& point, const Vector& at) {
  const size_t n = point.size();
  std::vector<Vector> slopes;
  for (size_t i = 0; i < n; ++i) {
    Vector moved = point;
    moved[i] += problem.step;
    Vector slope = problem.residuals(moved);
    for (size_t k = 0; k < at.size(); ++k) slope[k] = (slope[k] - at[k]) / problem.step;
    slopes.push_back(std::move(slope));
  }
  Normal normal{.matrix = std::vector<Vector>(n, Vector(n, 0)), .gradient = Vector(n, 0)};
  for (size_t k = 0; k < at.size(); ++k) {
    const double w = weight(problem, at[k]);
    for (size_t i = 0; i < n; ++i) {
      normal.gradient[i] -= w * slopes[i][k] * at[k];
      for (size_t j = 0; j <= i; ++j) normal.matrix[i][j] += w * slopes[i][k] * slopes[j][k];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) normal.matrix[i][j] = normal.matrix[j][i];
  }
  return normal;
}

}  // namespace

std::vector<double> minimise(const LeastSquares& problem, std::vector<double> start) {
  Vector point = std::move(start);
  Vector at = problem.residuals(point);
  double best = loss(problem, at);
  double damping = 1e-2;
  for (int round = 0; round < problem.rounds_max; ++round) {
    const Normal normal = normal_equations(problem, point, at);
    bool better = false;
    for (int attempt = 0; attempt < 12 && !better; ++attempt) {
      std::vector<Vector> damped = normal.matrix;
      for (size_t i = 0; i < damped.size(); ++i) damped[i][i] += damping * (damped[i][i] + 1e-9);
      const Vector move = solve(std::move(damped), normal.gradient);
      Vector next = point;
      // A leap in one round is never right in logarithms.
      for (size_t i = 0; i < next.size(); ++i) next[i] += std::clamp(move[i], -2.0, 2.0);
      Vector there = problem.residuals(next);
      const double sum = loss(problem, there);
      if (sum < best) {
        better = best - sum > 1e-10 * best;
        point = std::move(next);
        at = std::move(there);
        best = sum;
        damping = std::max(damping / 5, 1e-9);
        if (!better) return point;
      } else {
        damping *= 4;
      }
    }
    if (!better) return point;
  }
  return point;
}

}  // namespace pelton::cost_model
