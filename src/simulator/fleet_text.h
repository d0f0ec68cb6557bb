// What a simulated fleet did that a load generator cannot see, for people. Pure.
#pragma once

#include <string>

#include "simulator/simulation.h"

namespace pelton::simulator {

// Of the prompt tokens asked for, those found in prefix caches: 0 to 1.
double cached_share(const SimulationResult& result);

// Some lines: the load (in the caller's words), how busy the steps were, what the caches held.
// `took_s`: real time.
std::string fleet_text(const SimulationOptions& options, const SimulationResult& result,
                       const std::string& load, double took_s);

// Where a network lies between gateways and replicas, or facts came late: what was lost on it and
// what gateways did about that. Empty elsewhere.
std::string network_text(const SimulationResult& result);
// The same as a member "network" of a result.
std::string with_network(std::string json, const SimulationResult& result);

// Where keys and values lie beyond the device, or travel: what was found in which tier, what was
// moved, what split requests came to. Empty elsewhere.
std::string travel_text(const SimulationOptions& options, const SimulationResult& result);
// The same as a member "travel" of a result.
std::string with_travel(std::string json, const SimulationOptions& options,
                        const SimulationResult& result);

}  // namespace pelton::simulator
