#include "autoscaler/start_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pelton::autoscaler {

void StartTimes::note(double seconds) {
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

void StartTimes::save(base::JsonWriter& w) const {
  w.begin_object().key("seconds").begin_array();
  for (const double one : seen_) {
    w.begin_object().key("s");
    write_exact(w, one);
    w.end_object();
  }
  w.end_array().end_object();
}

void StartTimes::load(StateReader state) {
  seen_.clear();
  state.each("seconds", kKept, [&](StateReader one) { note(one.number("s")); });
}

}  // namespace pelton::autoscaler
