// What is known of one pool when its size is decided: plain values, gathered by whoever talks with
// gateways, workers and launchers. Nothing in here is a rate: gateways count since they began, so a
// report that is lost or comes twice does no harm, and a request that comes and goes between two
// reports is counted all the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autoscaler/served_sums.h"
#include "autoscaler/slo_capacity.h"

namespace pelton::autoscaler {

// Of one gateway and this pool, since the gateway began.
struct GatewayReport {
  std::string gateway;
  uint64_t incarnation = 0;  // another one: its counters began anew
  uint64_t sequence = 0;     // rises with every report
  int64_t requests = 0;      // received
  int64_t finished = 0;
  double in_service_s = 0;  // integral over time of the requests that replicas are at work on
  double held_s = 0;        // the same of those that wait in the gateway
  int in_service = 0;       // now
  int held = 0;             // now
  ServedSums served;        // of those that were answered, and not held
  // The retirement (PoolDecision::retirement) under which this gateway holds new requests.
  uint64_t holds_for = 0;
  int64_t at_ns = 0;  // when the report was received, by the decider's clock
};

enum class ReplicaPhase {
  kOrdered,   // asked for, nothing heard of it
  kStarting,  // somewhere between its process and its first step
  kReady,
  kStandby,   // weights resident, ready within moments of being woken
  kDraining,  // takes no new requests
};

struct ReplicaFacts {
  std::string id;
  ReplicaPhase phase = ReplicaPhase::kOrdered;
  int64_t ordered_ns = 0;
  int64_t progress_ns = 0;  // when its start was last seen to advance
  int64_t ready_ns = 0;     // since when it is ready
  int slots = 1;            // requests at a time
  int running = 0;
  int waiting = 0;         // in its own queue
  double kv_used = 0;      // 0 to 1
  ReplicaModel model;      // as its steps lately were; its slots are those above
  double price = 0;        // per hour
  double kept_value = 0;   // of what its prefix cache gave lately
  bool reclaimed = false;  // its provider takes it back
  bool healthy = true;
  bool stands_by = false;  // of kOrdered and kStarting: it will be kStandby
  bool found = false;      // whoever decides has not ordered it: how long its start took is unknown
};

struct PoolFacts {
  std::vector<GatewayReport> gateways;
  std::vector<ReplicaFacts> replicas;
  int slots_assumed = 1;          // of a replica, until one has been seen
  double service_s_assumed = 10;  // of a request, until enough of them have been seen
  double start_s_assumed = 30;    // of a replica, until one has been seen
  // The launcher's last start failed; no further one before this time. 0: none did.
  int64_t start_again_ns = 0;
  int64_t unix_s = 0;  // the time of day, for schedules
  // Of a pool with PoolPolicy::prefill: the replicas that compute its prompts. Those above go on.
  std::vector<ReplicaFacts> prefill = {};
  // Of those that compute prompts, seen as a pool: as many as the other role's decision says
  // (PoolDecision::Roles). They come and go with it and decide nothing by themselves.
  std::optional<int> wanted = {};
  // So many further ones may be started beside the other role's, or other pools'; none: as the
  // policy says.
  std::optional<int> room = {};
  // So many there may be, as other pools need the rest of the GPUs; none: as the policy says.
  std::optional<int> most = {};
};

}  // namespace pelton::autoscaler
