// [route.rollout]: one arm of a route that takes over by steps (gateway/rollout.h). Values; the
// keys are in docs/rollouts.md.
#pragma once

#include <string>

#include "base/result.h"
#include "gateway/config.h"

namespace pelton::gateway {

class ConfigTable;

// Of a route whose other keys have been read. Errors: kBadConfig, with the line.
Result<void> read_rollout(const ConfigTable& table, const GatewayConfig& config,
                          RouteConfig& route);
// As the file would say it, with all that was left out.
std::string rollout_text(const RolloutPlan& plan);

}  // namespace pelton::gateway
