// Sends spans to an OpenTelemetry collector (OTLP over HTTP, as JSON) from a thread of its own.
// Whoever offers spans never waits: what does not fit the queue, or reaches no collector, is
// counted and gone. Owned by the program's entry; any thread offers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/log.h"
#include "base/result.h"
#include "net/http_client.h"
#include "telemetry/span.h"

namespace pelton::telemetry {

class TraceExporter {
 public:
  struct Options {
    std::string url;  // "http://127.0.0.1:4318": "/v1/traces" is added where no path stands
    TracedService service;
    size_t requests_max = 1024;  // whose spans wait
    size_t batch_max = 128;      // requests whose spans go in one post
    std::chrono::milliseconds gather{1000};
    std::chrono::milliseconds post_time_max{3000};   // from connecting to the end of the answer
    std::chrono::milliseconds close_time_max{2000};  // for what waits when it goes
  };

  // Errors: kBadConfig, for a URL that is none or asks for TLS.
  static Result<std::unique_ptr<TraceExporter>> create(const Options& options, base::Log& log);
  ~TraceExporter();

  // The spans of one request, together.
  void offer(std::vector<Span> spans);

  int64_t exported() const { return exported_.load(); }  // spans that a collector took
  int64_t dropped() const { return dropped_.load(); }

 private:
  TraceExporter(const Options& options, net::HttpCall call, base::Log& log);

  void run();
  void post(const std::vector<Span>& spans);

  const Options options_;
  const net::HttpCall call_;
  base::Log& log_;
  base::BoundedQueue<std::vector<Span>> queue_;
  std::atomic<int64_t> exported_{0};
  std::atomic<int64_t> dropped_{0};
  std::atomic<int64_t> closing_ns_{0};  // since when; 0: not yet
  bool complained_ = false;             // its thread's
  net::HttpClient client_{{}};
  std::thread thread_;
};

}  // namespace pelton::telemetry
