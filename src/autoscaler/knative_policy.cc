#include "autoscaler/knative_policy.h"

#include <algorithm>
#include <cmath>

#include "autoscaler/replica_count.h"

namespace pelton::autoscaler {

int KnativePolicy::desired(double stable_concurrency, double panic_concurrency, int ready,
                           int64_t now_ns) {
  constexpr double kScaleUpRateMax = 1000;
  constexpr double kScaleDownRateMax = 2;
  const int replicas = std::max(ready, 1);
  const int least = static_cast<int>(std::floor(ready / kScaleDownRateMax));
  const int most = static_cast<int>(std::ceil(kScaleUpRateMax * replicas));
  const int stable_raw = replica_count(stable_concurrency / options_.target);
  const int panic_raw = replica_count(panic_concurrency / options_.target);
  const int stable = std::clamp(stable_raw, least, most);
  const int panic = std::clamp(panic_raw, least, most);

  const bool over = static_cast<double>(panic_raw) / replicas >= options_.panic_threshold;
  if (over) {
    if (!panicked_) panic_max_ = 0;
    panicked_ = true;
    panic_ns_ = now_ns;
  } else if (panicked_ && now_ns - panic_ns_ > options_.window_ns) {
    panicked_ = false;
  }
  if (!panicked_) return stable;
  panic_max_ = std::max({panic_max_, stable, panic});
  return panic_max_;
}

void KnativePolicy::save(base::JsonWriter& w) const {
  w.begin_object().key("panicked").boolean(panicked_).key("panic_ns").integer(panic_ns_);
  w.key("panic_max").integer(panic_max_).end_object();
}

void KnativePolicy::load(StateReader state) {
  panicked_ = state.boolean("panicked");
  panic_ns_ = state.time("panic_ns");
  panic_max_ = state.count("panic_max");
}

}  // namespace pelton::autoscaler
