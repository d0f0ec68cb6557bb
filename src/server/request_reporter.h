// Tells of each request that is over those who want to know: the access log, the trace collector.
// Owned by the Server; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/http_message.h"
#include "server/access_log.h"
#include "server/request_record.h"
#include "telemetry/trace_exporter.h"

namespace pelton::server {

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

  // Null if nobody wants to know of this one.
  std::unique_ptr<RequestRecord> begin(const net::HttpRequest& request);
  void end(RequestRecord& record);

  const Options& options() const { return options_; }

 private:
  uint64_t draw();
  void begin_trace(std::string_view traceparent, RequestRecord& record);

  const Options options_;
  const base::Clock& clock_;
  std::atomic<uint64_t> draws_{0};
};

}  // namespace pelton::server
