#include "workload/draws.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace pelton::workload {

int64_t Draws::integer(int64_t least, int64_t most) {
  CHECK(least <= most);
  const auto count = static_cast<double>(most - least) + 1;
  const auto step = static_cast<int64_t>(unit() * count);
  return least + (step > most - least ? most - least : step);
}

double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

// Marsaglia and Tsang 2000. A shape below one is drawn as shape + 1 and a power of a uniform
// number.
double Draws::gamma(double shape, double scale) {
  CHECK(shape > 0);
  if (shape < 1) {
    const double boost = std::pow(1 - unit(), 1 / shape);
    return gamma(shape + 1, scale) * boost;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - unit()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

SkewedChoice::SkewedChoice(size_t count, double skew) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    shares_.push_back(sum += std::pow(static_cast<double>(i + 1), -skew));
  }
  for (double& share : shares_) share /= sum;
}

size_t SkewedChoice::at(double unit) const {
  CHECK(unit >= 0 && unit < 1 && !empty());
  return static_cast<size_t>(std::ranges::upper_bound(shares_, unit) - shares_.begin());
}

}  // namespace pelton::workload
