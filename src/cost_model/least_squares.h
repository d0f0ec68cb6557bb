// Levenberg and Marquardt's method for a handful of parameters, derivatives by differences.
// Internal to this room and to whoever fits a few factors; pure.
#pragma once

#include <functional>
#include <vector>

namespace pelton::cost_model {

struct LeastSquares {
  // Residuals at a point: as many each time.
  std::function<std::vector<double>(const std::vector<double>&)> residuals;
  double step = 1e-4;  // of the differences
  int rounds_max = 60;
  // Beyond this a residual counts linearly, not squared (Huber 1964); 0: always squared.
  double outlier = 0;
};

// From `start` to a nearby minimum.
std::vector<double> minimise(const LeastSquares& problem, std::vector<double> start);

}  // namespace pelton::cost_model
