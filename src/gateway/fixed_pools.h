// Which pools a gateway that runs may neither gain nor lose: those with [pool.scale]. What holds
// requests for them, and whoever starts their replicas, begin with the process; a file that has
// another one, or calls one otherwise, would have its model served by nobody until the next start,
// while replicas run for the old one. Pure.
#pragma once

#include "base/result.h"
#include "gateway/config.h"

namespace pelton::gateway {

// Errors: kBadConfig: they are others in `fresh` than `in_force`, by their names, or by their
// models where replicas are started that are called so.
Result<void> check_fixed_pools(const GatewayConfig& in_force, const GatewayConfig& fresh);

}  // namespace pelton::gateway
