#include "server/request_reporter.h"

#include "base/random.h"
#include "server/request_trace.h"

namespace pelton::server {

std::unique_ptr<RequestRecord> RequestReporter::begin(const net::HttpRequest& request) {
  if (options_.access_log == nullptr && options_.traces == nullptr) return nullptr;
  constexpr size_t kPathBytesMax = 200;
  auto record = std::make_unique<RequestRecord>();
  record->arrived_ns = clock_.now_ns();
  record->arrived_unix_ms = clock_.unix_ms();
  record->path = request.path.substr(0, kPathBytesMax);
  record->remote = request.remote;
  record->request_bytes = static_cast<int64_t>(request.body.size());
  if (options_.traces != nullptr) begin_trace(request.headers.get("traceparent"), *record);
  return record;
}

void RequestReporter::end(RequestRecord& record) {
  record.ended_ns = clock_.now_ns();
  if (options_.access_log != nullptr) options_.access_log->write(record);
  if (record.traced) options_.traces->offer(request_spans(record, draw()));
}

uint64_t RequestReporter::draw() {
  return base::random_bits(options_.seed, draws_.fetch_add(1));
}

void RequestReporter::begin_trace(std::string_view traceparent, RequestRecord& record) {
  telemetry::TraceContext& trace = record.trace;
  if (const auto callers = telemetry::parse_traceparent(traceparent)) {
    trace = *callers;
    record.trace_parent = callers->span_id;
  } else {
    trace.trace_id = {draw(), draw() | 1};
    constexpr double kRange = 18446744073709551616.0;  // 2^64
    trace.sampled = static_cast<double>(draw()) < options_.trace_share * kRange;
  }
  trace.span_id = draw() | 1;
  record.traced = trace.sampled;
}

}  // namespace pelton::server
