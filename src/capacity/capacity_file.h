// The file of an allocation (TOML; docs/capacity.md lists the keys) as needs. Every key is known
// and in its bounds, every name is that of something, and a name is there once, whatever its case.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "capacity/fleet_needs.h"

namespace pelton::capacity {

// Errors: kBadConfig, "FILE:LINE: ...".
Result<FleetNeeds> parse_needs(std::string_view text, const std::string& file);
Result<FleetNeeds> read_needs(const std::string& file);

}  // namespace pelton::capacity
