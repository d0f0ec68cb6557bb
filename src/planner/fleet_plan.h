// The whole plan for a model on hardware: memory of one copy, closed-form estimates beside it,
// what fits where, and how many machines a load needs. Pure.
#pragma once

#include <optional>
#include <string>

#include "kv/group.h"
#include "planner/capacity_plan.h"
#include "planner/plan_report.h"

namespace pelton::planner {

struct FleetPlanOptions {
  CapacityOptions capacity;
  std::string machine;         // the instance's name; empty: devices alone
  std::string price_source;    // where the price comes from
  bool with_load = false;      // a workload or objectives were given
  double repeated_tokens = 0;  // of the demand's prompts: earlier turns, which a cache may hold
  double pause_s = 0;          // until they come again, on average
  int64_t context_tokens = 0;  // for the closed-form estimate; 0: 8 192
  int64_t batch = 4;
  bool memory_only = false;
  std::string efficiency_source;  // how the shares of the hardware's figures came about
};

// What a plan or a simulation of such copies is worth: one sentence, to be read first.
std::string worth_sentence(const cost_model::Hardware& hardware, const cost_model::Layout& layout);

Result<PlanReport> plan_fleet(const FleetPlanOptions& options);

// The fewest devices, a power of two, that hold the model; 0: more than are joined.
int fewest_devices(MemoryOptions options);

Section memory_section(const MemoryOptions& options, const MemoryPlan& plan);
Section closed_form_section(const FleetPlanOptions& options);
Section what_fits_section(const MemoryOptions& options);
Section capacity_section(const FleetPlanOptions& options, const CapacityPlan& plan);

// How many blocks of each of the model's KV groups a copy's budget buys, as the engine's own
// division of it (cost_model/kv_budget.h): for simulating an engine on hardware it does not run on.
kv::PerGroup<kv::GroupCapacity> kv_capacity(const MemoryOptions& options, const MemoryPlan& plan);

}  // namespace pelton::planner
