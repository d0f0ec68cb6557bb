// What is decided for a pool, with every term that led to it. A value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autoscaler/prefill_decode.h"
#include "autoscaler/slo_capacity.h"

namespace pelton::autoscaler {

// Which of the rules set the number.
enum class Reason {
  kDemand,         // flow and backlog (or Knative's average)
  kPanic,          // the panic window's
  kObjective,      // what keeps first tokens and gaps within the objective
  kForecast,       // a climbing load, so far ahead as a start takes
  kGuard,          // the KV cache or the queues are nearly full
  kDelay,          // less would do, but not yet for scale_down_delay_s
  kSurvivors,      // less would overload those that stay
  kOneDirection,   // the other direction was taken within the window
  kMinimum,        // replicas_min
  kMaximum,        // replicas_max
  kSchedule,       // a schedule's minimum or maximum
  kGpus,           // no more GPUs
  kPrice,          // no more money
  kIdle,           // nothing for idle_to_zero_s
  kHold,           // no facts, or old ones: nothing goes down
  kSilentGateway,  // idle, and a gateway that says nothing may send requests all the same
};
std::string_view reason_name(Reason reason);

struct PoolDecision {
  int desired = 0;  // replicas that are ready or coming
  Reason reason = Reason::kDemand;
  // What to do for it.
  int start = 0;                    // new replicas
  int start_standby = 0;            // of these, to stand by
  std::vector<std::string> wake;    // from standby, or from starting to stand by
  std::vector<std::string> recall;  // that drain
  std::vector<std::string> drain;
  std::vector<std::string> dismiss;  // that stand by, and are too many
  // Not 0: the last replica is to go, and gateways hold new requests; it drains once all of them
  // have said so (GatewayReport::holds_for) and nothing has come meanwhile.
  uint64_t retirement = 0;
  bool alarm = false;  // facts are missing, old (of any gateway) or impossible; a start is late

  // Under PoolPolicy::Rule::kSlo, once enough is known: at the objective's percentile, corrected.
  struct Slo {
    bool is_known = false;
    // The replicas that are ready do not keep it at the rate of now.
    bool is_missed = false;
    double first_token_s = 0;  // by the rate of now and the replicas that are ready; 0: too few are
    double gap_s = 0;
    SloCapacity::Correction correction;
    RequestShape shape;
    // No number of replicas keeps it.
    bool first_token_unattainable = false;
    bool gap_unattainable = false;
  };

  // Under PoolPolicy::prefill: what one decision says of both roles.
  struct Roles {
    bool is_paired = false;
    bool is_known = false;  // requests and steps; until then there is one of each
    PairDecision pair;
    double rate = 0;  // requests a second, and what has piled up by the backlog's time
    RequestShape shape;
    int prefill_ready = 0;
    int prefill_coming = 0;
  };

  struct Terms {
    double rate_fast = 0;  // requests a second
    double rate_slow = 0;
    double rate = 0;  // that was believed
    double service_s = 0;
    double concurrency_target = 0;  // of a replica
    double flow = 0;                // in replicas
    double backlog = 0;             // in replicas
    double backlog_ahead = 0;       // requests that will wait when a replica ordered now is ready
    int by_flow = 0;
    int by_demand = 0;
    int by_panic = 0;
    int by_forecast = 0;
    int by_guard = 0;
    int over_delay = 0;  // the greatest need within the delay
    double start_s_p90 = 0;
    int ready = 0;
    int coming = 0;  // ordered and starting that are still believed in
    int draining = 0;
    int standby = 0;  // also those that start to
    int held = 0;
    int waiting = 0;  // in replicas, beyond their free slots
    Slo slo;
    Roles roles;
  };
  Terms terms;

  // "3 replicas, 2 to start: demand (flow 2.4 from 2 requests/s x 8 s / 6.7, backlog 0.3)".
  std::string text() const;
};

}  // namespace pelton::autoscaler
