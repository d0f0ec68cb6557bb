#include "telemetry/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <sched.h>

#include "base/check.h"

namespace pelton::telemetry {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      part_lines_(bounds_.size() / kLineCounts + 1),
      counts_(std::make_unique<Line[]>(kParts * part_lines_)),
      sums_(std::make_unique<Sum[]>(kParts)) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()), "bounds ascend");
}

void Histogram::observe_times(double value, int64_t times) {
  if (!std::isfinite(value)) return;
  const auto range = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  // A guess is enough: whoever is moved meanwhile adds to another processor's.
  const size_t part = static_cast<size_t>(std::max(::sched_getcpu(), 0)) % kParts;
  count(part, static_cast<size_t>(range)).fetch_add(times, std::memory_order_relaxed);
  sums_[part].value.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
}

Histogram::Reading Histogram::read() const {
  Reading reading;
  for (size_t part = 0; part < kParts; ++part) {
    reading.sum += sums_[part].value.load(std::memory_order_relaxed);
  }
  int64_t total = 0;
  for (size_t range = 0; range <= bounds_.size(); ++range) {
    for (size_t part = 0; part < kParts; ++part) {
      total += count(part, range).load(std::memory_order_relaxed);
    }
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
