// A fleet in virtual time: replicas behind a dispatcher, requests as a workload has them, faults.
// The same options give the same run, whatever the machine. What comes out are the records that a
// load generator makes of a real server, so the same metrics and reports hold. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_model/calibration.h"
#include "cost_model/step_time.h"
#include "gateway/split_config.h"
#include "report/request_record.h"
#include "simulator/dispatcher.h"
#include "simulator/fault.h"
#include "simulator/network.h"
#include "simulator/pool_control.h"
#include "simulator/replica.h"
#include "workload/spec.h"

namespace pelton::simulator {

// LoRA adapters that conversations ask for, each one its own; Replica::Options says how many a
// replica can have.
struct AskedAdapters {
  int count = 0;  // 0: all ask the model itself
  // The i-th is asked for 1 / i^skew times as often as the first: 0 is evenly, 1 is Zipf's law.
  double skew = 1;
  double base_share = 0;  // of conversations with the model itself
};

// What clients do whose requests wait or fail.
struct Clients {
  std::optional<double> patience_s;  // until the first token; then they leave for good
  int retries_max = 0;               // of a request that failed
  double back_off_s = 1;             // before the first of them; twice as long each time
};

struct SimulationOptions {
  Replica::Options replica;  // of each; seeds differ
  int replica_count = 1;
  std::optional<Autoscaling> autoscaling;  // instead of a fixed count
  Dispatcher::Policy dispatch = Dispatcher::Policy::kLeastBusy;
  // Each request comes to one of so many gateways, drawn. They know of replicas what these report
  // so often (0: all, at once), and nothing of each other.
  int gateways = 1;
  double report_s = 0;
  // Shares of these reports that a gateway does not hear (what is stored and removed comes with the
  // next one that it does), and hears twice.
  double reports_lost = 0;
  double reports_doubled = 0;
  // Gateway and replica i stand in zone i % zones; an answer from another one takes so much longer.
  int zones = 1;
  double zone_distance_s = 0.05;
  // Between gateways and replicas; where it is on, or one of its faults is asked for, gateways
  // judge replicas by what they hear of them, as real ones do (cluster/worker_health.h).
  NetworkOptions network;
  double resume_budget_s = 10;  // how long a request waits there for a replica that can be reached
  AskedAdapters adapters;
  gateway::SplitConfig split;  // by the router by cost, between replicas with links to each other
  // The first so many replicas compute prompts only and the others decode; 0: each does both.
  int prefill_replicas = 0;
  Clients clients;
  cost_model::RequestOverhead overhead;
  std::vector<Fault> faults;
  // A request whose replica dies before its first token is sent to another one so many times.
  int retries_max = 2;
  // As behind a gateway: what a replica had begun to answer when it died goes on at another one,
  // from its last token on. Otherwise that is an error to its client.
  bool answers_go_on = false;
  std::optional<int> concurrency_max;  // of the clients; due requests wait for their turn
  int output_tokens_otherwise = workload::kOutputTokensOtherwise;
  bool keeps_pieces = true;          // when each token came: needed for ITL, costs memory
  std::optional<double> duration_s;  // cut off there; what is unfinished is left out
  uint64_t seed = 0;

  bool has_network() const;
};

// Of a fleet that was scaled.
struct ScalingCounts {
  double replica_s = 0;  // from each order until its replica was gone
  int replicas_most = 0;
  int started = 0;
  int failed_starts = 0;
  int direction_changes = 0;
  double held_s = 0;           // of all requests together, in the gateway
  int64_t facts_unheard = 0;   // decisions for which nothing new had come
  int64_t decisions_held = 0;  // decisions on facts too old to take replicas away
  ScalingHistory history;
};

// Of a fleet in several zones: requests sent, those sent across, and those of these that a replica
// of their own zone had room for.
struct ZoneCounts {
  int64_t sent = 0;
  int64_t across = 0;
  int64_t across_with_room = 0;
};

// Of requests that were split, and of what replicas fetched from each other.
struct TravelCounts {
  int64_t split = 0;              // sent to one replica for another to go on
  int64_t handed_over = 0;        // of these: gone on with there
  int64_t ended = 0;              // over before
  int64_t no_decoder = 0;         // none took it
  int64_t failed = 0;             // replicas that did not take it in the end
  int64_t found_tokens = 0;       // of prompts of whole blocks, by those who went on
  int64_t recomputed_tokens = 0;  // likewise, though the first replica had them
  int64_t transfers = 0;          // between replicas, that brought something
  int64_t bytes = 0;
  int64_t bytes_whole = 0;  // moving the same blocks' groups whole would have taken
  double gap_s = 0;         // between the last token of the first replica and the next one, summed
};

// Of a request that a router by cost sent: what it took until its first token, as that router
// predicted it (CostTerms::first_s) and as it was.
struct Prediction {
  double predicted_s = 0;
  double measured_s = 0;
};

// What a request went through, beside its record.
struct Journey {
  double sent_s = -1;  // to its last replica; -1: to none
  int replica = -1;    // which; -1: none, or at the fluid fidelity any
  int retries = 0;     // whose replica died
};

struct SimulationResult {
  std::vector<report::RequestRecord> records;  // in the order of their sending
  std::vector<Journey> journeys;               // theirs
  double duration_s = 0;                       // until the last answer's end, or the cut
  int64_t events = 0;
  int64_t redispatched = 0;
  int64_t moved = 0;  // of these, with tokens that had been said
  int64_t unfinished = 0;
  int64_t left = 0;            // by clients without patience
  int64_t client_retries = 0;  // of requests that had failed
  std::vector<ReplicaCounts> replicas;
  std::optional<ScalingCounts> scaling;
  ZoneCounts zones;
  TravelCounts travel;
  std::optional<NetworkCounts> network;
  std::vector<Prediction> predictions;
  // At the fluid fidelity, share of the time in which the KV cache was too small.
  double kv_overflow_share = 0;
};

// Share of them within a quarter of what was measured.
double predicted_share(const SimulationResult& result);

// Errors: kInvalidArgument.
Result<void> check_simulation(const SimulationOptions& options, const workload::Workload& workload);
Result<SimulationResult> simulate(const SimulationOptions& options,
                                  const workload::Workload& workload,
                                  const cost_model::StepTimeModel& times);

}  // namespace pelton::simulator
