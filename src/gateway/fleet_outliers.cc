// The part of gateway::Fleet that takes a worker out whose first tokens come late: later than its
// own reports lead to expect, by far more than those of its pool's others do. A worker that says
// itself how slow it is is priced instead (gateway/cost_router.h): pools may be mixed.
#include <algorithm>

#include <fmt/format.h>

#include "gateway/fleet.h"

namespace pelton::gateway {
namespace {

constexpr int kOthersMin = 10;
constexpr double kTimesLater = 3;
constexpr double kLeastS = 0.05;  // what is late by less is nobody's trouble

}  // namespace

void Fleet::note_delay(Worker& worker, double measured_s, double predicted_s) {
  const int64_t now_ns = clock_.now_ns();
  worker.delays.note(measured_s, predicted_s, now_ns);
  if (worker.health.state(now_ns) != cluster::WorkerState::kReady) return;
  const FirstTokenDelays::Middle mine = worker.delays.middle(now_ns);
  if (mine.requests < FirstTokenDelays::kRequests || is_half_ejected(worker.config.pool)) return;
  std::vector<double> ratios;
  for (const std::unique_ptr<Worker>& other : workers_) {
    if (other == nullptr || other.get() == &worker || other->config.pool != worker.config.pool) {
      continue;
    }
    const FirstTokenDelays::Middle its = other->delays.middle(now_ns);
    if (its.requests >= kOthersMin) ratios.push_back(its.ratio);
  }
  if (ratios.empty()) return;
  const double others = FirstTokenDelays::median(ratios);
  const double expected_s = mine.measured_s / mine.ratio * others;
  if (mine.ratio <= kTimesLater * others || mine.measured_s - expected_s < kLeastS) return;
  worker.slow_text = fmt::format(
      "its first tokens come {:.1f} times as late as the others' of its "
      "pool, of its last {} requests",
      mine.ratio / others, mine.requests);
  worker.health.eject(cluster::WorkerHealth::Cause::kSlow, now_ns);
  worker.delays.clear();
}

// Those of its health that were not counted yet.
void Fleet::count_ejections(Worker& worker) {
  const int64_t fresh = worker.health.ejected_times() - worker.ejected_times;
  worker.ejected_times += fresh;
  ejections_[static_cast<size_t>(worker.health.last_cause())] += fresh;
}

Fleet::Ejections Fleet::ejections() const {
  std::lock_guard lock(mutex_);
  return ejections_;
}

}  // namespace pelton::gateway
