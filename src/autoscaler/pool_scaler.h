// How many replicas a pool should have, from counted demand: a function of state, facts and time.
// It touches nothing; whoever calls it (the autoscaler's process, the simulator) carries out what
// it says and brings new facts.
//
// Demand has two parts. *Flow* is what keeps coming: rate x time in service, in requests in
// service, over what a replica should serve at once. *Backlog* is what has piled up while replicas
// started; counted as flow it would order replicas that have nothing to do a minute later, so it is
// to be worked off within backlog_s instead.
//
//   desired = ceil(flow + backlog),  flow = rate x S / (target x utilization),
//   backlog = B x S / (target x backlog_s)
//
// Under an objective (PoolPolicy::Rule::kSlo) flow is what keeps it instead (slo_capacity.h).
//
// Up at once and to the whole number; down in steps, after a delay, if those that stay can bear it.
// The number is absolute, never a multiple of what there is: replicas that start do not make it
// grow.
//
// Example: 2 requests a second of 8 s, target 16, utilization 70 %: 16 / 11.2 = 1.43 -> 2 replicas.
// With 40 requests held, 8 s and backlog_s 30: 40 x 8 / (16 x 30) = 0.67 more -> 3.
//
// One owner, one thread; time comes from one monotonic clock and does not fall.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autoscaler/demand.h"
#include "autoscaler/knative_policy.h"
#include "autoscaler/paired_pools.h"
#include "autoscaler/pool_decision.h"
#include "autoscaler/pool_facts.h"
#include "autoscaler/pool_policy.h"
#include "autoscaler/sliding_max.h"
#include "autoscaler/slo_capacity.h"
#include "autoscaler/slo_tracker.h"
#include "autoscaler/start_times.h"
#include "autoscaler/trend.h"

namespace pelton::autoscaler {

class PoolScaler {
 public:
  // The policy has been checked (PoolPolicy::check).
  explicit PoolScaler(const PoolPolicy& policy);

  PoolDecision decide(PoolFacts facts, int64_t now_ns);

  // What it remembers, as JSON. One of the same policy that restores it decides as this one would.
  std::string state() const;
  // Errors: kInvalidArgument: this is no such state; all is as it was.
  Result<void> restore(std::string_view state);

 private:
  struct Supply;
  struct Need {
    int replicas = 0;
    Reason reason = Reason::kDemand;
  };

  static bool is_given_up(const ReplicaFacts& one, double start_p90_s, int64_t now_ns);
  Supply supply(const PoolFacts& facts, int64_t now_ns) const;
  static bool forget_silent(PoolFacts& facts, int64_t now_ns);
  void learn(const PoolFacts& facts);
  Need need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
            PoolDecision::Terms& terms);
  // Of a pool of two roles, and of the replicas that follow the other role's decision.
  Need role_need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                 PoolDecision::Terms& terms);
  Need concurrency_need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                        PoolDecision::Terms& terms);
  // Replicas that a rate needs, by their slots or by the objective. `spare`: of the highest rate
  // that a replica could bear, what is left free.
  double flow(double rate, double spare, const Supply& supply,
              const PoolDecision::Terms& terms) const;
  double backlog_s(const Supply& supply) const;
  int64_t scale_down_delay_ns(const Supply& supply) const;
  static double backlog_ahead(const Supply& supply, const PoolDecision::Terms& terms);
  int guard_need(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                 const PoolDecision::Terms& terms);
  // What waits beyond free slots takes half of the objective's first token to be served.
  bool wait_is_long(const Supply& supply, const PoolDecision::Terms& terms) const;
  Need bounded(Need need) const;
  Need delayed(Need need, const Supply& supply, int64_t now_ns, PoolDecision::Terms& terms);
  int affordable_drop(int drop, const Supply& supply, const PoolDecision::Terms& terms) const;
  bool is_learning(const Supply& supply, bool facts_are_old, int64_t now_ns);
  // Of a request: of those of the window, or where they are few, of the last ones.
  double service_s(const Demand::Window& window, const PoolFacts& facts) const;
  bool facts_are_old(const PoolFacts& facts, int64_t now_ns) const;
  void retire(const PoolFacts& facts, const Supply& supply, int64_t now_ns, PoolDecision& decision);
  void order(const PoolFacts& facts, const Supply& supply, int64_t now_ns, PoolDecision& decision);
  void fill_standby(const PoolFacts& facts, const Supply& supply, int room,
                    PoolDecision& decision) const;
  void drain_surplus(const PoolFacts& facts, const Supply& supply, int64_t now_ns,
                     PoolDecision& decision);
  void note_direction(const PoolDecision& decision, const Supply& supply, int64_t now_ns);

  void load(StateReader state);

  const PoolPolicy policy_;
  PoolPolicy::Bounds bounds_;  // of this decision
  Demand demand_;
  SloTracker slo_tracker_;
  std::optional<PairedPools> pair_;
  Trend trend_;
  StartTimes starts_;
  KnativePolicy knative_;
  SlidingMax greatest_need_;
  std::map<std::string, bool> seen_ready_;  // replicas, by id: have been seen ready
  bool has_begun_ = false;                  // it has decided from facts that were not old
  int64_t found_ns_ = -1;  // when that was, where replicas were there already; -1: none were
  bool in_panic_ = false;
  int64_t panic_ns_ = 0;     // when the threshold was last exceeded
  int panic_max_ = 0;        // the greatest need of this panic
  int64_t guarded_ns_ = -1;  // when the guard last asked for one more
  int64_t last_up_ns_ = -1;
  int64_t last_drain_ns_ = -1;      // when any was last drained
  int64_t last_down_ns_ = -1;       // when the current step down began
  int step_left_ = 0;               // of that step: replicas that may still go
  int slots_ = 0;                   // of a replica, as last seen
  ReplicaModel model_;              // of a replica, as last seen
  std::optional<SloCapacity> slo_;  // of this decision; none: not known, or not asked for
  SloCapacity::Correction correction_;
  uint64_t retirement_ = 0;  // the current one; 0: none
  uint64_t retirements_ = 0;
  int64_t retirement_ns_ = 0;
};

}  // namespace pelton::autoscaler
