// What the two roles of one pool need, from what its gateways count and its replicas say: how many
// compute prompts and how many go on with answers (prefill_decode.h). PoolScaler asks it where its
// policy has PoolPolicy::prefill; its replicas are those that go on, with its own guard, bounds and
// way to nothing, and those that compute prompts come and go with them.
//
// Until requests and steps are known there is one of each, where any request is. None of both:
// once the pool has been idle, or before anybody has asked.
//
// One owner, one thread; times do not fall. Pure.
#pragma once

#include <cstdint>

#include "autoscaler/demand.h"
#include "autoscaler/pool_decision.h"
#include "autoscaler/pool_facts.h"
#include "autoscaler/pool_policy.h"
#include "autoscaler/prefill_decode.h"
#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

class PairedPools {
 public:
  // `policy` has `prefill` and passed its check.
  explicit PairedPools(const PoolPolicy& policy);

  struct Asked {
    const Demand::Window& slow;
    const Demand::Window& fast;
    double backlog_s = 30;  // in which what has piled up is to be served
    int decode_min = 0;     // that go on, though nobody asks; 0: none of both
    int64_t now_ns = 0;
  };
  const PoolDecision::Roles& decide(const PoolFacts& facts, const Asked& asked);
  // As decided last.
  const PoolDecision::Roles& roles() const { return roles_; }

  void save(base::JsonWriter& w) const;
  void load(const StateReader& state);

 private:
  void learn(const std::vector<ReplicaFacts>& replicas, ReplicaModel& model) const;
  void learn(const ServedSums& served);
  PoolDecision::Roles decided(const PoolFacts& facts, const Asked& asked);

  SloObjective objective_;
  int affordable_;  // replicas of both roles
  int prefill_min_;
  PairScaler scaler_;
  PairModel model_;
  RequestShape shape_;
  PoolDecision::Roles roles_;
};

}  // namespace pelton::autoscaler
