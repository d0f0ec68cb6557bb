// pelton simulate's other fidelity: its flags, how far it is from the steps, years of a fleet, and
// several seeds of one run.
#pragma once

#include <string>
#include <vector>

#include "apps/simulated_play.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/fleet_figures.h"
#include "simulator/scenario.h"

namespace pelton::apps {

std::vector<cli::Flag> fluid_flags();
// Of these, one that other verbs do not know which play single runs.
bool is_of_whole_run(std::string_view flag);
// Of a replica for an hour: --price, or what scales it says; 0: not known.
double price_of(const cli::Arguments& arguments, const simulator::SimulationOptions& options);

// --check-fluid: the same load at the other fidelity, and how far the two are apart.
Result<std::string> check_fluid_text(const cli::Arguments& arguments, const Play& play,
                                     const simulator::SimulationResult& result);

// --days: `scenario`: null: none.
Result<void> run_year(const cli::Arguments& arguments, const std::string& model,
                      const simulator::Scenario* scenario);

// --seeds: figures' means with their intervals.
Result<void> run_seeds(const cli::Arguments& arguments, const std::string& model,
                       const simulator::Scenario* scenario);

}  // namespace pelton::apps
