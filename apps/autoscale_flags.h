// How the replicas of a simulated fleet start and stop: flags of `pelton simulate`, and keys of
// [pool.scale] as `pelton autoscale` reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "engine/executor.h"
#include "gateway/scaling_config.h"
#include "simulator/pool_control.h"

namespace pelton::apps {

// --autoscale and what goes with it, --scale-config and --pool.
std::vector<cli::Flag> autoscale_flags();

// `otherwise`: a scenario's [scale]; flags go before its keys. None: the fleet is not scaled.
Result<std::optional<simulator::Autoscaling>> read_autoscaling(
    const cli::Arguments& arguments, int replicas, const engine::ExecutorCapacity& capacity,
    const std::optional<gateway::ScalingConfig>& otherwise);

// "provision:20,weights:30~60": phases of a start, one after the other, in seconds; behind ~ the
// 90th percentile. Errors: kInvalidArgument.
Result<std::vector<simulator::StartPhase>> parse_start_phases(const std::string& text);

// The [pool.scale] of a gateway's file, of the pool of that name, or of the one that has it.
// Errors: kBadConfig, kInvalidArgument.
Result<gateway::ScalingConfig> read_scale_config(const std::string& file, const std::string& pool);

// "pool.NAME.KEY=VALUE" or "KEY=VALUE" each: keys of [pool.scale] over what `scaling` has, in any
// order (of one key the last counts). `pool`: whose they are; `flag`: what gave them. Errors:
// kInvalidArgument, with the nearest key.
Result<void> set_scale_keys(const std::vector<std::string>& settings, const std::string& pool,
                            const std::string& flag, gateway::ScalingConfig& scaling);

}  // namespace pelton::apps
