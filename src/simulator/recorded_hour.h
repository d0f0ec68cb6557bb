// A file of an autoscaler's recorded facts (autoscaler/facts_log.h) as a load that can be played
// again, on the recorded knobs or on others. Each recorded decision is decided again first, and has
// to be the same to the byte.
//
// Gateways count; so what is known is how many requests came between two reports, and how long
// those in service took. Requests are set evenly into the time between the reports; each takes as
// long as the mean of those that were in service in its minute. What a request asked for is not
// known, and that a fuller replica is slower is not played: a step takes as long whatever it holds.
//
// Values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autoscaler/pool_policy.h"
#include "base/result.h"
#include "simulator/fleet_figures.h"
#include "simulator/simulation.h"

namespace pelton::simulator {

struct RecordedHour {
  std::string pool;
  autoscaler::PoolPolicy policy;  // the last one
  int64_t decisions = 0;          // each as it was recorded
  double duration_s = 0;
  int64_t begin_unix_s = 0;
  std::vector<double> at_s;       // of requests, rising
  std::vector<double> service_s;  // of each
  double service_mean_s = 0;
  double service_s_assumed = 0;  // what the autoscaler took a request for at the beginning
  int slots = 1;                 // of a replica
  int replicas = 0;              // ready at the beginning
  double start_s = 30;           // the median of the starts that were seen, or what was assumed
  double start_p90_s = 0;
  PlayedFleet seen;  // what the facts themselves say; without times to first tokens

  static constexpr int64_t kRequestsMax = 10'000'000;
};

// `pool`: empty where the file has one alone. `last_s`: of its end only so much; 0: all of it.
// Errors: kInvalidArgument, with `file` and the line.
Result<RecordedHour> read_recorded_hour(std::string_view text, const std::string& file,
                                        const std::string& pool, double last_s);

// The fleet and the load that play it, with a replica whose every step takes step_seconds().
double step_seconds(const RecordedHour& hour);
Result<SimulationResult> play_hour(const RecordedHour& hour, const Autoscaling& scaling,
                                   uint64_t seed, SimulationOptions* used);
Autoscaling autoscaling_of(const RecordedHour& hour);

}  // namespace pelton::simulator
