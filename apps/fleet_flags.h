// The flags that say on which hardware, under which load and within which objectives: shared by
// `plan`, which computes, and `simulate`, which plays.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "cost_model/calibration.h"
#include "planner/fleet_plan.h"
#include "workload/spec.h"

namespace pelton::apps {

// --gpu --instance --devices --layout --compute --calibration
std::vector<cli::Flag> hardware_flags();
// That other hardware than this machine is meant.
std::vector<cli::Circumstance> named_hardware();
bool has_hardware(const cli::Arguments& arguments);

// --workload --request-rate --num-prompts and lengths
std::vector<cli::Flag> workload_flags();
// That flags of `flags` have an effect only so.
void only_with(std::vector<cli::Flag>& flags, const std::vector<cli::Circumstance>& any_of);
void not_with(std::vector<cli::Flag>& flags, const std::vector<cli::Circumstance>& none_of);
// Of answers of random lengths. 0: a request ends with its prompt's last step, which is said.
void set_output_tokens(workload::WorkloadSpec& spec, int64_t tokens);
// `otherwise`: what a scenario says, where --workload is not given.
Result<workload::WorkloadSpec> read_workload(
    const cli::Arguments& arguments,
    const std::optional<workload::WorkloadSpec>& otherwise = std::nullopt);

// "tp8", "ep4", "tp4pp2", "1". kInvalidArgument.
Result<cost_model::Layout> parse_layout(const std::string& text);

// The hardware, or what stands in for this machine; its devices, price, and what is taken of its
// figures without a calibration.
Result<void> read_machine(const cli::Arguments& arguments, planner::FleetPlanOptions& plan);

struct HardwareChoice {
  planner::FleetPlanOptions plan;  // hardware, shape, layout, efficiency, price
  cost_model::Calibration calibration;
  bool calibrated = false;
};
// `model`: what find_model_config takes, or a hub id. With batch_flags' and memory_flags' numbers.
Result<HardwareChoice> read_hardware(const cli::Arguments& arguments, const std::string& model);

}  // namespace pelton::apps
