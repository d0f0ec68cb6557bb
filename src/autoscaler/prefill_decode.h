// How many replicas compute prompts and how many decode, where requests are split between them:
// both numbers in one decision. Pure; a pool with PoolPolicy::prefill asks it (paired_pools.h).
//
// Each pool is a SloCapacity of its own: prompts without further tokens, for the time to the first
// one; tokens without prompts, for the gaps. Longer prompts make the first pool larger and leave
// the second one alone.
//
//   prefill = least(rate / 0.85) of {computed},  decode = least(rate / 0.85) of {output}
//
// Without a prefill pool the decode pool serves requests whole: where that takes no more GPUs, and
// the policy allows it, there is none. Under a ceiling the GPUs are split so that the larger of
// first token over objective and gap over objective is as small as it can be: both are late by the
// same factor, as nearly as whole replicas allow.
//
// Up at once; down once less has been enough for the delay, and then with 30 % to spare. Where one
// pool is to grow with the GPUs of the other one, both move, or neither does.
//
// One owner, one thread; times do not fall.
#pragma once

#include <cstdint>

#include "autoscaler/sliding_max.h"
#include "autoscaler/slo_capacity.h"
#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

struct PairPolicy {
  SloObjective objective;  // both times
  int prefill_min = 0;     // 0: none while the decode pool serves as well alone
  int decode_min = 0;      // 0: none of both while nobody asks
  int prefill_max = 1;
  int decode_max = 1;
  int prefill_gpus = 1;  // of a replica
  int decode_gpus = 1;
  int gpus_max = 2;  // of both pools: a ceiling
  double scale_down_delay_s = 300;
};

struct PairModel {
  ReplicaModel prefill;
  ReplicaModel decode;
};

struct PairCounts {
  int prefill = 0;
  int decode = 0;

  friend bool operator==(const PairCounts&, const PairCounts&) = default;
};

struct PairDecision {
  PairCounts counts;
  PairCounts needed;        // without the ceiling, and without the delay
  bool at_ceiling = false;  // fewer than are needed
  // By the counts, at the objective's percentile over the objective; above kOverloaded: more comes
  // than is served, and so many times as much.
  double first_token_late = 0;
  double gap_late = 0;
  static constexpr double kOverloaded = 1e6;
};

class PairScaler {
 public:
  explicit PairScaler(const PairPolicy& policy) : policy_(policy) {}

  // `rate`: requests a second.
  PairDecision decide(const PairModel& model, const RequestShape& shape, double rate,
                      int64_t now_ns);

  void save(base::JsonWriter& w) const;
  void load(const StateReader& state);

 private:
  struct Pools;
  PairCounts needed(const Pools& pools, double rate, double used) const;
  PairCounts at_ceiling(const Pools& pools, double rate, PairCounts needed) const;
  PairCounts within_ceiling(const Pools& pools, double rate, PairCounts needed) const;
  int gpus(const PairCounts& counts) const {
    return counts.prefill * policy_.prefill_gpus + counts.decode * policy_.decode_gpus;
  }

  PairPolicy policy_;
  PairCounts counts_;
  SlidingMax prefill_over_delay_;
  SlidingMax decode_over_delay_;
  bool is_split_ = true;         // a prefill pool is needed
  int64_t whole_since_ns_ = -1;  // since when it would not be
};

}  // namespace pelton::autoscaler
