// Means of independent runs with their intervals, by Student's t. Pure functions.
#pragma once

#include <span>

namespace pelton::report {

struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;
  bool has_bounds = false;  // two values at least
};
// 95 %. Example: 1, 2, 3 -> 2, from 2 - 4.303 / sqrt(3) to 2 + 4.303 / sqrt(3).
Interval mean_interval(std::span<const double> values);

}  // namespace pelton::report
