// One run of the simulator as the flags of `pelton simulate` and a scenario say it: read here,
// played here, reported by whoever asked for it. Values.
#pragma once

#include <string>

#include "apps/fleet_flags.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/scenario.h"
#include "simulator/simulation.h"
#include "workload/spec.h"

namespace pelton::apps {

// All that is played.
struct Play {
  HardwareChoice choice;
  simulator::SimulationOptions options;
  workload::WorkloadSpec spec;
  workload::Workload workload;
  bool is_fluid = false;  // --fidelity
};

// `arguments`: of a verb that has simulate's flags. `scenario`: null: none.
Result<Play> read_play(const cli::Arguments& arguments, const std::string& model,
                       const simulator::Scenario* scenario);
Result<simulator::SimulationResult> simulate_play(const Play& play);
Result<cost_model::StepTimeModel> times_of(const Play& play);

}  // namespace pelton::apps
