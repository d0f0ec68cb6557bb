#include "telemetry/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace pelton::telemetry {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<int64_t>[]>(bounds_.size() + 1)) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()), "bounds ascend");
}

void Histogram::observe_times(double value, int64_t times) {
  if (!std::isfinite(value)) return;
  const auto range = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(range)].fetch_add(times, std::memory_order_relaxed);
  sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
}

Histogram::Reading Histogram::read() const {
  Reading reading{.up_to = {}, .sum = sum_.load(std::memory_order_relaxed)};
  int64_t total = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    reading.up_to.push_back(total);
  }
  return reading;
}

std::vector<double> one_two_five(int64_t last) {
  std::vector<double> bounds;
  for (int64_t ten = 1; ten <= last; ten *= 10) {
    for (const int64_t digit : {1, 2, 5}) {
      if (digit * ten < last) bounds.push_back(static_cast<double>(digit * ten));
    }
  }
  bounds.push_back(static_cast<double>(last));
  return bounds;
}

}  // namespace pelton::telemetry
