// A load of known requests at the fluid fidelity: one pool (fluid_pool.h), its records those of the
// other fidelity, so that the same reports hold. Pure; one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "simulator/simulation.h"
#include "workload/spec.h"

namespace pelton::simulator {

// As simulate() (simulation.h). Errors: also what this
// fidelity does not model, by its flag.
Result<SimulationResult> simulate_fluid(const SimulationOptions& options,
                                        const workload::Workload& workload,
                                        const cost_model::StepTimeModel& times);

// What it does not model of this fleet. Nothing: it models it.
std::optional<Error> fluid_refusal(const SimulationOptions& options);
// What it takes more simply than the other fidelity: sentences for reports.
std::vector<std::string> fluid_notes(const SimulationOptions& options,
                                     const SimulationResult& result);

// How far two runs of one load are apart, as shares of the first.
struct FluidCheck {
  double throughput = 0;  // output tokens a second
  double ttft_p50 = 0;
  double ttft_p90 = 0;
  double replica_hours = 0;
  int64_t late_by = 0;  // requests that are late in one, over those in the other
};
FluidCheck compare_fidelities(const SimulationOptions& options, const SimulationResult& steps,
                              const SimulationResult& fluid, double late_s);

}  // namespace pelton::simulator
