// Dates as HTTP writes them. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace pelton::net {

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(int64_t unix_seconds);

}  // namespace pelton::net
