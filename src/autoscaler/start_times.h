// How long replicas of a pool take to start, from those that were seen to become ready. Pure; one
// owner.
#pragma once

#include <deque>

namespace pelton::autoscaler {

class StartTimes {
 public:
  void note(double seconds);
  // Nearest-rank percentile of the last 20; `assumed_s` until one was seen.
  double percentile(double share, double assumed_s) const;

 private:
  std::deque<double> seen_;
};

}  // namespace pelton::autoscaler
