#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace pelton::eval {

Interval wilson_interval(int64_t right, int64_t n) {
  if (n == 0) return {.low = 0, .high = 1};
  constexpr double kZ = 1.959963984540054;  // of 97.5 %
  const auto count = static_cast<double>(n);
  const double share = static_cast<double>(right) / count;
  const double widened = 1 + kZ * kZ / count;
  const double middle = (share + kZ * kZ / (2 * count)) / widened;
  const double half =
      kZ / widened * std::sqrt(share * (1 - share) / count + kZ * kZ / (4 * count * count));
  return {.low = std::max(0.0, middle - half), .high = std::min(1.0, middle + half)};
}

double mcnemar_p(int64_t only_a, int64_t only_b) {
  const int64_t n = only_a + only_b;
  if (n == 0) return 1;
  // The smaller tail of a binomial with p = 1/2, twice.
  double tail = 0;
  for (int64_t k = 0; k <= std::min(only_a, only_b); ++k) {
    const auto count = static_cast<double>(n);
    const auto at = static_cast<double>(k);
    tail += std::exp(std::lgamma(count + 1) - std::lgamma(at + 1) - std::lgamma(count - at + 1) -
                     count * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

Interval bootstrap_interval(std::span<const double> differences, uint64_t seed, int rounds) {
  if (differences.empty()) return {};
  std::vector<double> means(static_cast<size_t>(rounds));
  uint64_t draw = 0;
  for (double& mean : means) {
    double sum = 0;
    for (size_t i = 0; i < differences.size(); ++i) {
      sum += differences[base::random_bits(seed, draw++) % differences.size()];
    }
    mean = sum / static_cast<double>(differences.size());
  }
  std::ranges::sort(means);
  const auto at = [&](double share) {
    return means[static_cast<size_t>(share * static_cast<double>(means.size() - 1))];
  };
  return {.low = at(0.025), .high = at(0.975)};
}

}  // namespace pelton::eval
