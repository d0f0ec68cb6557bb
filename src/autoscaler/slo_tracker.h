// What an objective's arithmetic (slo_capacity.h) needs to know of a pool, learnt while it runs:
// what steps cost, what requests are like, what one takes of the KV cache, and how far the
// computed means are from the measured ones. What is not seen any more is remembered. Pure; one
// owner.
//
// Gaps are compared with what the rows that were really there make of a step, so what is learnt is
// the step's (or, where a step emits several tokens, how many), whatever the number of replicas
// was. First tokens depend on the queue, so they are compared only when that number has been the
// same for a window and an answer's time.
#pragma once

#include <cstdint>
#include <optional>

#include "autoscaler/demand.h"
#include "autoscaler/pool_decision.h"
#include "autoscaler/pool_facts.h"
#include "autoscaler/slo_capacity.h"
#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

class SloTracker {
 public:
  SloTracker(const SloObjective& objective, double window_s)
      : objective_(objective), window_s_(window_s) {}

  // `slots`: of a replica.
  void learn(const PoolFacts& facts, int slots);
  struct Now {
    int ready = 0;
    double service_s = 0;
    int64_t now_ns = 0;
  };
  // None: too little has been seen yet. What is known goes to `slo`.
  std::optional<SloCapacity> update(const Demand::Window& window, const Now& now,
                                    PoolDecision::Slo& slo);

  void save(base::JsonWriter& w) const;
  void load(const StateReader& state);

 private:
  void correct(const Demand::Window& window, const Now& now);
  SloCapacity capacity() const;

  SloObjective objective_;
  double window_s_;
  ReplicaModel model_;
  RequestShape shape_;
  SloCapacity::Correction correction_;
  int64_t corrected_ns_ = -1;  // when that was last learnt
  int ready_ = -1;
  int64_t ready_ns_ = -1;  // since when there are so many
};

}  // namespace pelton::autoscaler
