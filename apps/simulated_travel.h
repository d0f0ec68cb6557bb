// Flags of `pelton simulate` for keys and values beyond the device: tiers of a replica, links
// between replicas, requests that are split between two of them.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/simulation.h"

namespace pelton::apps {

std::vector<cli::Flag> simulated_travel_flags();
// Gives the replica's capacity blocks in the further tiers. Errors: kInvalidArgument.
Result<void> read_simulated_travel(const cli::Arguments& arguments,
                                   simulator::SimulationOptions& options);

}  // namespace pelton::apps
