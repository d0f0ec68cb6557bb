#include "access/request_reporter.h"

#include "access/request_trace.h"
#include "base/random.h"

namespace pelton::access {
namespace {

// A constant, so that foreign words do not become names of spans.
std::string_view known_method(std::string_view method) {
  if (method.empty()) return {};
  for (const std::string_view known :
       {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}) {
    if (method == known) return known;
  }
  return kOtherMethod;
}

}  // namespace

std::unique_ptr<RequestRecord> RequestReporter::begin(const Arrival& arrival) {
  if (!wanted()) return nullptr;
  constexpr size_t kPathBytesMax = 200;
  auto record = std::make_unique<RequestRecord>();
  record->arrived_ns = clock_.now_ns();
  record->arrived_unix_ms = clock_.unix_ms();
  record->path = arrival.path.substr(0, kPathBytesMax);
  record->http_method = known_method(arrival.http_method);
  record->remote = arrival.remote;
  record->request_id = arrival.request_id;
  record->request_bytes = arrival.request_bytes;
  if (options_.traces != nullptr) begin_trace(arrival, *record);
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

void RequestReporter::begin_trace(const Arrival& arrival, RequestRecord& record) {
  telemetry::TraceContext& trace = record.trace;
  if (arrival.within != nullptr) {
    trace = arrival.within->trace;
    record.trace_parent = trace.span_id;
  } else if (const auto callers = telemetry::parse_traceparent(arrival.traceparent)) {
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

}  // namespace pelton::access
