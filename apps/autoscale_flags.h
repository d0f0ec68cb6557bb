// The flags that say how `simulate` starts and stops replicas.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "engine/executor.h"
#include "simulator/pool_control.h"

namespace pelton::apps {

// --autoscale --min-replicas --max-replicas --start-seconds --scale-down-delay --concurrency-target
// --target-utilization
std::vector<cli::Flag> autoscale_flags();
// None: the count is fixed. `replicas`: ready at the beginning, each with that capacity.
Result<std::optional<simulator::Autoscaling>> read_autoscaling(
    const cli::Arguments& arguments, int replicas, const engine::ExecutorCapacity& capacity);

}  // namespace pelton::apps
