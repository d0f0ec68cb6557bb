// What the two roles of one pool need, from what its gateways count: how many replicas compute
// prompts and how many go on with answers (autoscaler/prefill_decode.h). Those that go on are the
// pool's own (autoscaler::PoolScaler holds, retires and guards them); those that compute prompts
// come and go with them.
//
// Until requests and steps are known there is one of each, where any request is. None of both:
// once the pool has been idle, or before anybody has asked.
//
// One owner, one thread; times do not fall. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "autoscaler/demand.h"
#include "autoscaler/pool_facts.h"
#include "autoscaler/prefill_decode.h"

namespace pelton::autoscaler {

class PairedPools {
 public:
  PairedPools(const PairPolicy& policy, double window_s);

  // `prefill`: its replicas; `decode`: its replicas and the pool's gateways. `decode_min`: those
  // that are kept though nobody asks; 0: none of both.
  PairDecision decide(const PoolFacts& prefill, const PoolFacts& decode, int decode_min,
                      int64_t now_ns);

 private:
  void learn(const PoolFacts& facts, ReplicaModel& model) const;
  void learn(const ServedSums& served);

  PairPolicy policy_;
  PairScaler scaler_;
  Demand demand_;
  PairModel model_;
  RequestShape shape_;
};

}  // namespace pelton::autoscaler
