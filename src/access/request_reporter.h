// Reports each request that is over to those who want to know: the access log, the trace collector.
// Owned by the Server; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "access/access_log.h"
#include "access/request_record.h"
#include "base/clock.h"
#include "telemetry/trace_exporter.h"

namespace pelton::access {

class RequestReporter {
 public:
  struct Options {
    AccessLog* access_log = nullptr;             // both outlive the server
    telemetry::TraceExporter* traces = nullptr;  //
    double trace_share = 1.0;  // of requests whose caller does not say whether to trace them
    uint64_t seed = 0;         // of ids
  };

  RequestReporter(const Options& options, const base::Clock& clock)
      : options_(options), clock_(clock) {}

  // What is known of a request when it comes.
  struct Arrival {
    std::string_view path;
    std::string_view http_method = {};  // empty: it does not come as an HTTP request of its own
    std::string_view remote;
    std::string_view request_id;
    std::string_view traceparent;  // as its caller says it; empty: not at all
    int64_t request_bytes = 0;
    // The one that it came within, a turn over its connection for one: it belongs to that one's
    // trace, below it. Null: none.
    const RequestRecord* within = nullptr;
  };

  // Whether anybody wants to know of any.
  bool wanted() const { return options_.access_log != nullptr || options_.traces != nullptr; }
  // Null if nobody wants to know of this one.
  std::unique_ptr<RequestRecord> begin(const Arrival& arrival);
  void end(RequestRecord& record);

  const Options& options() const { return options_; }

 private:
  uint64_t draw();
  void begin_trace(const Arrival& arrival, RequestRecord& record);

  const Options options_;
  const base::Clock& clock_;
  std::atomic<uint64_t> draws_{0};
};

}  // namespace pelton::access
