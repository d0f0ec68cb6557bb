// Where the weights of simulated replicas come from when these start: a tier with a bandwidth of
// its own, and one that all starts share.
#pragma once

#include <vector>

#include "apps/fleet_flags.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/pool_control.h"

namespace pelton::apps {

std::vector<cli::Flag> simulated_start_flags();

// Puts a phase "weights" that fetches into the start: for one of that name, else behind all of
// them. Errors: kInvalidArgument.
Result<void> read_simulated_start(const cli::Arguments& arguments, const HardwareChoice& choice,
                                  simulator::Autoscaling& asked);

}  // namespace pelton::apps
