#include "report/confidence.h"

#include <array>
#include <cmath>

#include "report/percentile.h"

namespace pelton::report {
namespace {

// Student's t at 0.975 for 1 to 30 degrees of freedom.
constexpr std::array<double, 30> kStudent = {
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};

}  // namespace

Interval mean_interval(std::span<const double> values) {
  Interval interval{.mean = mean(values)};
  interval.low = interval.high = interval.mean;
  if (values.size() < 2) return interval;
  const auto n = static_cast<double>(values.size());
  const double sample = standard_deviation(values) * std::sqrt(n / (n - 1));
  const size_t freedom = values.size() - 1;
  const double t = freedom <= kStudent.size() ? kStudent[freedom - 1] : 1.96 + 2.5 / (n - 1);
  const double half = t * sample / std::sqrt(n);
  interval.low -= half;
  interval.high += half;
  interval.has_bounds = true;
  return interval;
}

}  // namespace pelton::report
