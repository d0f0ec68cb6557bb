// Calendar time as logs write it. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace pelton::base {

// "2025-06-28T12:00:00.123Z"
std::string utc_time(int64_t unix_ms);

}  // namespace pelton::base
