// Years of a fleet at the fluid fidelity: pools whose load is a rate and not a list of requests,
// with faults that are drawn. Amounts of requests are drawn by ticks; replicas are decided by the
// shipped autoscaler. What came late or was lost is counted by its cause, so that an availability
// can be taken apart. Pure; one thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "simulator/fleet_figures.h"
#include "simulator/simulation.h"
#include "workload/arrivals.h"

namespace pelton::simulator {

// What goes wrong again and again.
struct FaultRate {
  enum class Scope { kReplica, kNode, kZone, kRegion, kFleet };
  std::string cause;  // "replica"
  Scope scope = Scope::kReplica;
  double mtbf_s = 0;     // of one replica, node, zone or region, or of the fleet
  bool is_even = false;  // after each mtbf_s exactly, as releases are
  double share = 1;      // of those in it that die
  // So long none starts there: of a zone, those of the other ones still can. Of a region nobody
  // answers there for so long.
  double down_s = 0;
};

// Requests that are alike, of so large a share of all.
struct RequestClass {
  double share = 1;
  double prompt = 1;
  double computed = 1;
  double output = 1;
};

struct YearOptions {
  SimulationOptions fleet;  // of one pool, scaled
  workload::Arrivals arrivals;
  std::vector<RequestClass> classes;
  int pools = 1;  // their days begin at other hours
  // Each has an equal part of each pool's load, replicas of its own and an autoscaler for these;
  // days begin there at other hours. Where one is lost, or has no replica yet behind that, its
  // requests go to the others; those of its first `failover_s` are lost.
  int regions = 1;
  double failover_s = 5;
  double duration_s = 365 * 86'400.0;
  double tick_s = 10;
  int zones = 1;
  int node_replicas = 8;
  double late_s = 2;
  std::vector<FaultRate> faults;
};

struct CauseShare {
  std::string cause;
  int64_t incidents = 0;
  double requests = 0;  // late, lost or left by it
  double share = 0;     // of all requests
};

struct YearResult {
  FleetFigures figures;
  FleetTimeline timeline;
  double requests = 0;
  double availability = 1;         // share of the requests that were neither late nor lost
  std::vector<CauseShare> causes;  // the largest first
};

// Errors: kInvalidArgument: also what is not modelled.
Result<YearResult> simulate_year(const YearOptions& options,
                                 const cost_model::StepTimeModel& times);

// [{"cause": "zone", "of": "zone", "mtbf_s": 3e7, "down_s": 3600, "share": 1, "even": false}].
Result<std::vector<FaultRate>> parse_fault_rates(const Json& json, const std::string& origin);

// `most` classes of like size, by the lengths that requests of a load have.
std::vector<RequestClass> request_classes(const workload::Workload& sample, int output_otherwise,
                                          size_t most);

}  // namespace pelton::simulator
