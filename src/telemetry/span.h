// A stretch of time in a trace: what a room did for one request. And how OpenTelemetry's collectors
// read many of them (OTLP as JSON). Plain values; names and keys are constants of ours.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pelton::telemetry {

struct Span {
  enum class Kind { kInternal = 1, kServer = 2 };  // OTLP's numbers

  struct Attribute {
    std::string_view key;
    std::variant<std::string, int64_t, double, std::vector<std::string>> value;
  };

  std::array<uint64_t, 2> trace_id{};
  uint64_t span_id = 0;
  uint64_t parent_id = 0;  // 0: none
  std::string name;
  Kind kind = Kind::kInternal;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  bool failed = false;
  std::vector<Attribute> attributes;
};

struct TracedService {
  std::string name;  // "pelton"
  std::string version;
};

// An ExportTraceServiceRequest.
std::string otlp_json(const TracedService& service, const std::vector<Span>& spans);

}  // namespace pelton::telemetry
