// What a fleet did in a run, in some numbers, and over time: for tables and pages that show several
// runs side by side. Values, pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "simulator/simulation.h"

namespace pelton::simulator {

struct FleetFigures {
  // False: of what autoscalers record, which is when requests came and ended, and not how. Then
  // late, lost, left, failed_starts, tokens, used and needed hours are not known.
  bool knows_requests = true;
  int64_t requests = 0;
  int64_t late = 0;  // answered, with the first token later than that after they were due
  int64_t lost = 0;  // ended with an error
  int64_t left = 0;  // whose client had waited enough
  // Seconds; none: nobody's first token is known.
  std::optional<double> ttft_p50_s;
  std::optional<double> ttft_p90_s;
  std::optional<double> ttft_p99_s;
  double output_tokens_per_s = 0;
  double replica_hours = 0;
  int most = 0;  // replicas at once
  int started = 0;
  int failed_starts = 0;
  int direction_changes = 0;
  std::optional<double> held_mean_s;  // in the gateway, of all requests
  std::optional<double> cost;         // where a replica's price is known
  double used_hours = 0;              // of replicas, with a step running
  double needed_hours = 0;  // what was answered took so much of replicas, were all slots filled
};

// One that waited long, and what for.
struct SlowRequest {
  int64_t number = 0;  // in the order of their sending
  double due_s = 0;
  double first_s = 0;    // until its first token
  double sent_s = 0;     // of these, until it was sent to a replica
  double further_s = 0;  // from the first token to the last
  int64_t input = 0;
  int64_t cached = 0;
  int64_t output = 0;
  int replica = -1;
  int retries = 0;
  std::string why;
};
// Of those that were answered, by the time to the first token.
std::vector<SlowRequest> slowest(const SimulationResult& result, size_t most);

// `price`: of a replica for an hour; 0: not known.
FleetFigures figures_of(const SimulationOptions& options, const SimulationResult& result,
                        double late_s, double price);

// Of the moments from 0 to the end, in equal parts.
struct FleetTimeline {
  double part_s = 1;
  std::vector<double> requests;  // due in each part
  std::vector<double> late;      // of those: late, lost or left
  std::vector<ScalingSample> samples;
};
FleetTimeline timeline_of(const SimulationOptions& options, const SimulationResult& result,
                          double late_s);

struct PlayedFleet {
  std::string name;
  FleetFigures figures;
  FleetTimeline timeline;
  std::vector<ScalingStep> steps;
  int64_t steps_count = 0;  // also those that are not kept
  std::vector<SlowRequest> slow = {};
};
PlayedFleet played_fleet(std::string name, const SimulationOptions& options,
                         const SimulationResult& result, double late_s, double price);

// A row for each; `first` heads the column of their names.
std::string figures_table(const std::string& first, std::span<const PlayedFleet> fleets);
void write_figures(base::JsonWriter& w, const FleetFigures& figures);
void write_steps(base::JsonWriter& w, std::span<const ScalingStep> steps);
// The first `most` of them, a line each.
std::string steps_text(const PlayedFleet& fleet, size_t most);

}  // namespace pelton::simulator
