// The flags that say on which hardware, under which load and within which objectives: shared by
// `plan`, which computes, and `simulate`, which plays.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "cost_model/calibration.h"
#include "planner/fleet_plan.h"
#include "workload/spec.h"

namespace pelton::apps {

// --gpu --instance --layout --compute --calibration --price
std::vector<cli::Flag> hardware_flags();
// Whether any of them was given.
bool has_hardware(const cli::Arguments& arguments);

// --workload --rate --num-prompts --max-concurrency --seed and lengths
std::vector<cli::Flag> workload_flags();
Result<workload::WorkloadSpec> read_workload(const cli::Arguments& arguments);

// "tp8", "ep4", "tp4pp2", "1". kInvalidArgument.
Result<cost_model::Layout> parse_layout(const std::string& text);

struct HardwareChoice {
  planner::FleetPlanOptions plan;  // hardware, shape, layout, efficiency, price
  cost_model::Calibration calibration;
};
// `model`: what find_model_shape takes, or a hub id. With batch_flags' and memory_flags' numbers.
Result<HardwareChoice> read_hardware(const cli::Arguments& arguments, const std::string& model);

}  // namespace pelton::apps
