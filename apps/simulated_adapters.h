// The flags that say which LoRA adapters `simulate`'s conversations ask for, and what a replica has
// room for.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "simulator/simulation.h"

namespace pelton::apps {

// --adapters --adapter-skew --adapter-base-share --adapter-load-ms, and serve's --max-loras
// --max-cpu-loras --lora-loads-per-second.
std::vector<cli::Flag> simulated_adapter_flags();
// Nothing without --adapters. Errors: kInvalidArgument.
Result<void> read_simulated_adapters(const cli::Arguments& arguments,
                                     simulator::SimulationOptions& options);

}  // namespace pelton::apps
