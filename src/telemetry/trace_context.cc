#include "telemetry/trace_context.h"

#include <fmt/format.h>

namespace pelton::telemetry {
namespace {

// Exactly as many digits; capitals are not allowed.
std::optional<uint64_t> parse_hex(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace

// "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"; later versions may go on after a "-".
std::optional<TraceContext> parse_traceparent(std::string_view header) {
  constexpr size_t kLength = 55;
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' || header[52] != '-') {
    return std::nullopt;
  }
  const std::optional<uint64_t> version = parse_hex(header.substr(0, 2));
  if (!version || *version == 0xFF) return std::nullopt;
  const bool longer = header.size() > kLength;
  if (longer && (*version == 0 || header[kLength] != '-')) return std::nullopt;
  const std::optional<uint64_t> high = parse_hex(header.substr(3, 16));
  const std::optional<uint64_t> low = parse_hex(header.substr(19, 16));
  const std::optional<uint64_t> span = parse_hex(header.substr(36, 16));
  const std::optional<uint64_t> flags = parse_hex(header.substr(53, 2));
  if (!high || !low || !span || !flags) return std::nullopt;
  if ((*high == 0 && *low == 0) || *span == 0) return std::nullopt;
  return TraceContext{.trace_id = {*high, *low}, .span_id = *span, .sampled = (*flags & 1) != 0};
}

std::string format_traceparent(const TraceContext& context) {
  return fmt::format("00-{}-{}-{:02x}", hex(context.trace_id), hex(context.span_id),
                     context.sampled ? 1 : 0);
}

std::string hex(const std::array<uint64_t, 2>& trace_id) {
  return fmt::format("{:016x}{:016x}", trace_id[0], trace_id[1]);
}

std::string hex(uint64_t span_id) {
  return fmt::format("{:016x}", span_id);
}

}  // namespace pelton::telemetry
