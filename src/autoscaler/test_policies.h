// For tests and benchmarks: how others scale, from their published formulas, to compare with. Each
// is asked in seconds of virtual time and answers with an absolute number of replicas.
//
// Sources: kubernetes.io/docs, "Horizontal Pod Autoscaling" (1.31); llm-d's Workload Variant
// Autoscaler, its saturation mode as documented; Baseten's page on autoscaling. No source was
// consulted. Knative's is knative_policy.h. Examples: test_policies_test.cc. Pure; one owner each.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autoscaler/pool_decision.h"
#include "autoscaler/pool_facts.h"
#include "autoscaler/replica_count.h"

namespace pelton::autoscaler {

// What a policy of others sees of a pool.
struct Observed {
  int ready = 0;
  int pending = 0;    // ordered or starting
  double in_use = 0;  // requests in service
  double held = 0;    // requests that wait
  int slots = 1;      // of a replica
  int64_t now_s = 0;

  double requests() const { return in_use + held; }
  int present() const { return ready + pending; }
};

// Kubernetes' HorizontalPodAutoscaler over a metric of pods: requests at each of them.
//
//   desired = ceil(pods x (metric / target)),  nothing while |metric / target - 1| <= tolerance
//
// Upwards, pods that are not ready count as using nothing; if that turns the ratio round, nothing
// is done. Up at most to the greater of twice as many and 4 more, in each 15 s; down to the
// greatest of the last 300 s, in each period by the larger of the two steps.
class HpaPolicy {
 public:
  struct Options {
    double target = 10;  // requests at a pod
    double tolerance = 0.1;
    int64_t period_s = 15;
    double up_share = 1;
    int up_pods = 4;
    int64_t stabilization_s = 300;  // downwards
    double down_share = 1;
    int down_pods = 0;
    int least = 1;
    int most = 10'000;
  };
  explicit HpaPolicy(const Options& options) : options_(options) {}

  int recommended(const Observed& seen) const {
    const int pods = seen.present();
    if (seen.ready == 0) return pods;
    const double ratio = seen.requests() / seen.ready / options_.target;
    if (std::abs(ratio - 1) <= options_.tolerance) return pods;
    if (seen.pending == 0 || ratio < 1) return replica_count(ratio * seen.ready);
    const double with_pending = seen.requests() / pods / options_.target;
    if (with_pending <= 1 + options_.tolerance) return pods;
    return replica_count(with_pending * pods);
  }

  int desired(const Observed& seen) {
    if (asked_s_ >= 0 && seen.now_s - asked_s_ < options_.period_s) return last_;
    asked_s_ = seen.now_s;
    const int pods = seen.present();
    const int now = std::clamp(recommended(seen), options_.least, options_.most);
    past_.emplace_back(seen.now_s, now);
    while (past_.front().first < seen.now_s - options_.stabilization_s) past_.pop_front();
    int kept = now;
    for (const auto& [at_s, count] : past_) kept = std::max(kept, count);
    if (now > pods) {
      const int by_share = pods + replica_count(pods * options_.up_share);
      last_ = std::min(now, std::max(by_share, pods + options_.up_pods));
    } else {
      const int step = std::max(replica_count(pods * options_.down_share), options_.down_pods);
      last_ = std::max(std::min(kept, pods), pods - step);
    }
    last_ = std::clamp(last_, options_.least, options_.most);
    return last_;
  }

 private:
  const Options options_;
  std::deque<std::pair<int64_t, int>> past_;  // what was recommended, and when
  int64_t asked_s_ = -1;
  int last_ = 1;
};

// One more or one fewer in each tick, and none while one is pending: llm-d's saturation mode, and
// alike NVIDIA Dynamo's by load. A replica is saturated at KV >= 0.8 or 5 requests in its queue;
// one more where the others have on average less than 0.1 of KV or 3 of the queue to spare; one
// fewer where what all use still leaves that to N - 1.
class OneStepPolicy {
 public:
  struct Options {
    double kv_saturated = 0.8;
    double kv_spare = 0.1;
    double queue_saturated = 5;
    double queue_spare = 3;
    int64_t period_s = 30;
    int least = 1;
    int most = 10'000;
  };
  explicit OneStepPolicy(const Options& options) : options_(options) {}

  // KV as slots in use: requests are alike, and their KV grows with their number.
  int desired(const Observed& seen) {
    if (asked_s_ >= 0 && seen.now_s - asked_s_ < options_.period_s) return last_;
    asked_s_ = seen.now_s;
    last_ = seen.present();
    if (seen.pending == 0) {
      if (!fits(seen, std::max(seen.ready, 1))) {
        ++last_;
      } else if (seen.ready > 1 && fits(seen, seen.ready - 1)) {
        --last_;
      }
    }
    last_ = std::clamp(last_, options_.least, options_.most);
    return last_;
  }

 private:
  bool fits(const Observed& seen, int replicas) const {
    const double kv = seen.in_use / (static_cast<double>(seen.slots) * replicas);
    const double queue = seen.held / replicas;
    return options_.kv_saturated - kv >= options_.kv_spare &&
           options_.queue_saturated - queue >= options_.queue_spare;
  }

  const Options options_;
  int64_t asked_s_ = -1;
  int last_ = 1;
};

// Baseten's: ceil(requests on average over a window / (target x utilization)); up at once; down
// when less has been enough for a delay, by half of the surplus in each.
class HalvingPolicy {
 public:
  struct Options {
    double target = 1;
    double utilization = 0.7;
    int64_t window_s = 60;
    int64_t delay_s = 900;
    double down_share = 0.5;
    int least = 0;
    int most = 10'000;
  };
  explicit HalvingPolicy(const Options& options) : options_(options) {}

  int needed(double requests) const {
    return replica_count(requests / (options_.target * options_.utilization));
  }
  int desired(const Observed& seen) {
    past_.push_back(seen.requests());
    if (std::ssize(past_) > options_.window_s) past_.pop_front();
    double sum = 0;
    for (const double one : past_) sum += one;
    const int now =
        std::clamp(needed(sum / static_cast<double>(past_.size())), options_.least, options_.most);
    if (now >= seen.present()) {
      below_since_s_ = -1;
      return now;
    }
    if (below_since_s_ < 0) below_since_s_ = seen.now_s;
    if (seen.now_s - below_since_s_ < options_.delay_s) return seen.present();
    below_since_s_ = seen.now_s;
    return seen.present() - replica_count((seen.present() - now) * options_.down_share);
  }

 private:
  const Options options_;
  std::deque<double> past_;
  int64_t below_since_s_ = -1;
};

inline Observed observed(const PoolFacts& facts, int64_t now_ns) {
  Observed seen{.slots = std::max(facts.slots_assumed, 1), .now_s = now_ns / 1'000'000'000};
  for (const ReplicaFacts& one : facts.replicas) {
    seen.ready += one.phase == ReplicaPhase::kReady ? 1 : 0;
    seen.pending +=
        one.phase == ReplicaPhase::kOrdered || one.phase == ReplicaPhase::kStarting ? 1 : 0;
  }
  for (const GatewayReport& one : facts.gateways) {
    seen.in_use += one.in_service;
    seen.held += one.held;
  }
  return seen;
}

// A number as what is to be done for it: draining replicas are taken again first, the youngest go.
inline PoolDecision as_decision(int desired, const PoolFacts& facts) {
  PoolDecision decision{.desired = desired};
  std::vector<const ReplicaFacts*> ready;
  int present = 0;
  for (const ReplicaFacts& one : facts.replicas) {
    if (one.phase == ReplicaPhase::kReady) ready.push_back(&one);
    present += one.phase == ReplicaPhase::kDraining ? 0 : 1;
  }
  for (const ReplicaFacts& one : facts.replicas) {
    if (one.phase != ReplicaPhase::kDraining || present >= desired) continue;
    decision.recall.push_back(one.id);
    ++present;
  }
  decision.start = std::max(desired - present, 0);
  std::stable_sort(ready.begin(), ready.end(),
                   [](const auto* a, const auto* b) { return a->ready_ns > b->ready_ns; });
  for (const ReplicaFacts* one : ready) {
    if (present <= desired) break;
    decision.drain.push_back(one->id);
    --present;
  }
  return decision;
}

// For TestPool::Options::decide.
template <typename Policy>
std::function<PoolDecision(const PoolFacts&, int64_t)> decide_by(
    const typename Policy::Options& options) {
  auto policy = std::make_shared<Policy>(options);
  return [policy](const PoolFacts& facts, int64_t now_ns) {
    return as_decision(policy->desired(observed(facts, now_ns)), facts);
  };
}

}  // namespace pelton::autoscaler
