// Flags of `pelton simulate` for the network between gateways and replicas, and for how late the
// autoscaler hears.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/simulation.h"

namespace pelton::apps {

std::vector<cli::Flag> simulated_network_flags();
// After all faults have been read: where some are of the network, gateways have one.
void read_simulated_network(const cli::Arguments& arguments, simulator::SimulationOptions& options);

}  // namespace pelton::apps
