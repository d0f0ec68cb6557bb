// Numbers as people write and read them: "32K" tokens, "4GiB" of memory, "12.8 GiB", "1m 40s".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::cli {

// A whole number with an optional unit. K M G T and KiB MiB GiB TiB are powers of 1024; k and
// KB MB GB TB are powers of 1000. A fraction is fine if the product is whole enough: "1.5GiB".
Result<int64_t> parse_size(std::string_view text);
// The same, a number without a unit counting so many each: of "0.5" and 2^30 half a GiB.
Result<int64_t> parse_size(std::string_view text, double bare_unit);

std::string format_bytes(double bytes);       // "12.8 GiB"
std::string format_count(int64_t count);      // "131,072"
std::string format_duration(double seconds);  // "850 ms", "12.3 s", "4m 05s", "2h 10m"

}  // namespace pelton::cli
