// Which trace a request belongs to, as W3C's header "traceparent" carries it from program to
// program. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::telemetry {

struct TraceContext {
  std::array<uint64_t, 2> trace_id{};  // never zero
  uint64_t span_id = 0;                // never zero: the caller's span
  bool sampled = false;                // the caller records it, and so should we
};

// None: the header is not what the standard says; then a trace begins here.
std::optional<TraceContext> parse_traceparent(std::string_view header);
std::string format_traceparent(const TraceContext& context);

// Lowercase hexadecimal, as both the header and OTLP's JSON want it.
std::string hex(const std::array<uint64_t, 2>& trace_id);
std::string hex(uint64_t span_id);

}  // namespace pelton::telemetry
