#include "server/request_trace.h"

#include <string>
#include <utility>

#include "base/random.h"

namespace pelton::server {
namespace {

using telemetry::Span;

// Turns times of the monotonic clock into calendar ones, and adds spans below the request's own.
class SpanList {
 public:
  SpanList(const RequestRecord& record, uint64_t seed)
      : record_(record),
        seed_(seed),
        unix_minus_clock_ns_(record.arrived_unix_ms * 1'000'000 - record.arrived_ns) {
    spans_.push_back({.trace_id = record.trace.trace_id,
                      .span_id = record.trace.span_id,
                      .parent_id = record.trace_parent,
                      .name = "server",
                      .kind = Span::Kind::kServer,
                      .start_unix_ns = unix(record.arrived_ns),
                      .end_unix_ns = unix(record.ended_ns),
                      .failed = record.status >= 500,
                      .attributes = {}});
  }

  Span& root() { return spans_.front(); }
  // Nothing if the request did not come so far.
  Span* add(std::string_view name, int64_t start_ns, int64_t end_ns) {
    if (start_ns == 0 || end_ns < start_ns) return nullptr;
    const uint64_t id = base::random_bits(seed_, spans_.size());
    spans_.push_back({.trace_id = record_.trace.trace_id,
                      .span_id = id == 0 ? 1 : id,
                      .parent_id = record_.trace.span_id,
                      .name = name,
                      .kind = Span::Kind::kInternal,
                      .start_unix_ns = unix(start_ns),
                      .end_unix_ns = unix(end_ns),
                      .failed = false,
                      .attributes = {}});
    return &spans_.back();
  }
  std::vector<Span> take() { return std::move(spans_); }

 private:
  int64_t unix(int64_t clock_ns) const { return clock_ns + unix_minus_clock_ns_; }

  const RequestRecord& record_;
  const uint64_t seed_;
  const int64_t unix_minus_clock_ns_;
  std::vector<Span> spans_;
};

void describe_request(const RequestRecord& record, Span& root) {
  root.attributes = {
      {"http.request.method", std::string(record.method)},
      {"http.route", std::string(record.handler)},
      {"http.response.status_code", static_cast<int64_t>(record.status)},
      {"http.request.body.size", record.request_bytes},
      {"pelton.request_id", record.request_id},
  };
  if (!record.model.empty()) root.attributes.push_back({"gen_ai.request.model", record.model});
  const GenerationFacts& made = record.generation;
  if (made.answers == 0) return;
  root.attributes.push_back({"gen_ai.usage.input_tokens", made.prompt_tokens});
  root.attributes.push_back({"gen_ai.usage.output_tokens", made.output_tokens});
  root.attributes.push_back({"pelton.cached_tokens", made.cached_tokens});
}

}  // namespace

std::vector<telemetry::Span> request_spans(const RequestRecord& record, uint64_t seed) {
  SpanList spans(record, seed);
  describe_request(record, spans.root());
  const engine::RequestTimes& times = record.generation.times;
  spans.add("format.compile", record.compile_began_ns, record.compile_ended_ns);
  if (times.queued_ns == 0) return spans.take();
  spans.add("chat", record.arrived_ns, times.queued_ns);  // body to tokens
  spans.add("admission", times.queued_ns, times.seated_ns);
  spans.add("engine.prefill", times.seated_ns, times.first_token_ns);
  spans.add("engine.decode", times.first_token_ns, times.last_token_ns);
  spans.add("net", times.last_token_ns, record.ended_ns);  // the last token's way out
  return spans.take();
}

}  // namespace pelton::server
