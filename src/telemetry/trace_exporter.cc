#include "telemetry/trace_exporter.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace pelton::telemetry {
namespace {

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<std::unique_ptr<TraceExporter>> TraceExporter::create(const Options& options,
                                                             base::Log& log) {
  Result<net::HttpCall> call = net::make_http_call("POST", options.url);
  if (!call.ok()) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("traces cannot go to '{}': {}", options.url, call.error().message),
                 "otlp-endpoint"};
  }
  if (call->target.empty() || call->target == "/") call->target = "/v1/traces";
  call->headers.add("Content-Type", "application/json");
  call->whole_time_max = options.post_time_max;
  call->body_bytes_max = size_t{1} << 16;
  return std::unique_ptr<TraceExporter>(new TraceExporter(options, std::move(call).value(), log));
}

TraceExporter::TraceExporter(const Options& options, net::HttpCall call, base::Log& log)
    : options_(options),
      call_(std::move(call)),
      log_(log),
      queue_(options.requests_max),
      thread_([this] { run(); }) {}

TraceExporter::~TraceExporter() {
  closing_ns_ = steady_ns();
  queue_.close();
  thread_.join();
}

void TraceExporter::offer(std::vector<Span> spans) {
  const auto count = static_cast<int64_t>(spans.size());
  if (!queue_.try_push(std::move(spans))) dropped_.fetch_add(count);
}

void TraceExporter::run() {
  pthread_setname_np(pthread_self(), "pelton-traces");
  while (std::optional<std::vector<Span>> first = queue_.pop()) {
    std::vector<Span> spans = std::move(*first);
    const int64_t gathered_ns = steady_ns() + std::chrono::nanoseconds(options_.gather).count();
    for (size_t requests = 1; requests < options_.batch_max; ++requests) {
      const int64_t left_ns = gathered_ns - steady_ns();
      std::optional<std::vector<Span>> next =
          left_ns > 0 ? queue_.pop_for(std::chrono::nanoseconds(left_ns)) : queue_.try_pop();
      if (!next) break;
      spans.insert(spans.end(), std::make_move_iterator(next->begin()),
                   std::make_move_iterator(next->end()));
    }
    post(spans);
  }
}

void TraceExporter::post(const std::vector<Span>& spans) {
  const auto count = static_cast<int64_t>(spans.size());
  const int64_t closing_ns = closing_ns_.load();
  const int64_t close_max_ns = std::chrono::nanoseconds(options_.close_time_max).count();
  if (closing_ns != 0 && steady_ns() - closing_ns > close_max_ns) {
    dropped_.fetch_add(count);
    return;
  }
  net::HttpCall call = call_;
  call.body = otlp_json(options_.service, spans);
  call.repeatable = true;  // spans have identities
  const Result<net::HttpResponse> reply = net::http_fetch(client_, std::move(call));
  if (reply.ok() && reply->status / 100 == 2) {
    exported_.fetch_add(count);
    complained_ = false;
    return;
  }
  dropped_.fetch_add(count);
  if (std::exchange(complained_, true)) return;  // once until it works again
  log_.warning(
      fmt::format("traces: {} takes none: {}", options_.url,
                  reply.ok() ? fmt::format("status {}", reply->status) : reply.error().message));
}

}  // namespace pelton::telemetry
