// A span of time in words, as Go's time.ParseDuration reads it and users of Ollama write it:
// "300ms", "1.5h", "1h30m", "-1m", "0". Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pelton::base {

// One or more of number and unit (ns, us, ms, s, m, h), with one sign before them all; "0" needs no
// unit. Nanoseconds; nothing: it is no span, or one of more than 290 years.
std::optional<int64_t> parse_duration_ns(std::string_view text);

}  // namespace pelton::base
