// A configuration as the file would say it, with all that was left out: for `--print-config`. What
// it names by file (keys) it names by file. Read again it is the same configuration, but for the
// workers of other sources, which stand in it too.
#pragma once

#include <string>

#include "gateway/config.h"

namespace pelton::gateway {

std::string config_text(const GatewayConfig& config);
// Of one pool: its [pool.scale] and [pool.launch].
std::string scaling_text(const ScalingConfig& scaling);

}  // namespace pelton::gateway
