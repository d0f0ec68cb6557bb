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

// By the fleet's turn and not with each answer, as all of a pool are looked at: each is compared
// with the middle of the others, whose ratios are sorted once.
void Fleet::eject_slow(std::string_view pool, int64_t now_ns) {
  struct Judged {
    Worker* worker = nullptr;
    FirstTokenDelays::Middle middle;
  };
  std::vector<Judged> all;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool) continue;
    const FirstTokenDelays::Middle middle = worker->delays.middle(now_ns);
    if (middle.requests >= kOthersMin) all.push_back({.worker = worker.get(), .middle = middle});
  }
  if (all.size() < 2) return;
  std::ranges::sort(all, {}, [](const Judged& one) { return one.middle.ratio; });
  for (size_t i = 0; i < all.size(); ++i) {
    const FirstTokenDelays::Middle& mine = all[i].middle;
    size_t middle = (all.size() - 1) / 2;  // of the others: as if it were not among them
    if (middle >= i) ++middle;
    const double others = all[middle].middle.ratio;
    const double expected_s = mine.measured_s / mine.ratio * others;
    Worker& worker = *all[i].worker;
    const bool is_slow = mine.requests >= FirstTokenDelays::kRequests &&
                         mine.ratio > kTimesLater * others &&
                         mine.measured_s - expected_s >= kLeastS;
    if (!is_slow || worker.health.state(now_ns) != cluster::WorkerState::kReady ||
        is_half_ejected(pool)) {
      continue;
    }
    worker.slow_text = fmt::format(
        "its first tokens come {:.1f} times as late as the others' of its "
        "pool, of its last {} requests",
        mine.ratio / others, mine.requests);
    worker.health.eject(cluster::WorkerHealth::Cause::kSlow, now_ns);
    worker.delays.clear();
  }
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
