// Knative's pod autoscaler (KPA), its published arithmetic: for those who move, and to compare
// with.
//
//   stable = ceil(concurrency over the window / target),  panic = the same over the panic window
//   both clamped to [floor(ready / 2), ceil(1000 x ready)]
//   panic begins when panic / ready >= the threshold, ends after a window without that; meanwhile
//   the greatest need of this panic stands
//
// Source: knative.dev/docs/serving/autoscaling, 1.15; golang source not consulted. Example: target
// 10 x 70 %, 25 requests in service and held: ceil(25 / 7) = 4. Pure; one owner.
#pragma once

#include <cstdint>

#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

class KnativePolicy {
 public:
  struct Options {
    double target = 70;  // requests at a replica: concurrency target times utilization
    double panic_threshold = 2;
    int64_t window_ns = 60'000'000'000;
  };
  explicit KnativePolicy(const Options& options) : options_(options) {}

  // Both averages count what is in service and what is held.
  int desired(double stable_concurrency, double panic_concurrency, int ready, int64_t now_ns);
  bool in_panic() const { return panicked_; }

  void save(base::JsonWriter& w) const;
  void load(StateReader state);

 private:
  const Options options_;
  bool panicked_ = false;
  int64_t panic_ns_ = 0;  // when the threshold was last exceeded
  int panic_max_ = 0;
};

}  // namespace pelton::autoscaler
