// How long replicas of a pool take to start, from those that were seen to become ready. Pure; one
// owner.
#pragma once

#include <deque>

#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

class StartTimes {
 public:
  void note(double seconds);
  // Nearest-rank percentile of the last 20; `assumed_s` until one was seen.
  double percentile(double share, double assumed_s) const;

  void save(base::JsonWriter& w) const;
  void load(StateReader state);

 private:
  static constexpr size_t kKept = 20;
  std::deque<double> seen_;
};

}  // namespace pelton::autoscaler
