// Schedules of [pool.scale], as they are written: {days = "mon-fri", from = "07:00", to = "19:00",
// zone = "+01:00", min = 2, max = 8}. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "autoscaler/pool_policy.h"
#include "base/result.h"

namespace pelton::gateway {

class ConfigTable;

// `table`: [pool.scale]. Errors: kBadConfig with the line.
Result<void> read_schedules(const ConfigTable& table, std::vector<autoscaler::Schedule>& schedules);
// As TOML's inline tables.
std::string schedules_text(const std::vector<autoscaler::Schedule>& schedules);

}  // namespace pelton::gateway
