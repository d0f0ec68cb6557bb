#include "autoscaler/start_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pelton::autoscaler {

void StartTimes::note(double seconds) {
  constexpr size_t kKept = 20;
  if (!std::isfinite(seconds) || seconds < 0) return;
  seen_.push_back(seconds);
  if (seen_.size() > kKept) seen_.pop_front();
}

double StartTimes::percentile(double share, double assumed_s) const {
  if (seen_.empty()) return assumed_s;
  std::vector<double> sorted(seen_.begin(), seen_.end());
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1];
}

}  // namespace pelton::autoscaler
