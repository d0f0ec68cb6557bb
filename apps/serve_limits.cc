#include "apps/serve_limits.h"

#include "server/work_pool.h"

namespace pelton::apps {

std::vector<std::pair<std::string, int64_t>> limits_in_force(const ServeLimits& limits) {
  const cli::Arguments& arguments = limits.arguments;
  const auto number = [](size_t count) { return static_cast<int64_t>(count); };
  const auto ms_of = [&](const char* flag) {
    return static_cast<int64_t>(arguments.number(flag) * 1000);
  };
  std::vector<std::pair<std::string, int64_t>> all = {
      {"queued_requests_max", limits.engine.inbox_max},
      {"queued_tokens_max", limits.engine.queued_tokens_max},
      {"queue_wait_ms_max", limits.engine.queue_wait_max_ns / 1'000'000},
      {"connections_max", limits.connections_max},
      {"format_compile_cpu_ms_max", server::WorkPool::Options{}.long_lane.cpu_us_max / 1000},
      {"header_bytes_max", number(limits.http.header_bytes_max)},
      {"body_bytes_max", number(limits.http.body_bytes_max)},
      {"bodies_bytes_max", number(limits.http.bodies_bytes_max)},
      {"websocket_message_bytes_max", number(net::Exchange::WebSocket{}.message_bytes_max)},
      {"first_byte_ms_max", limits.http.first_byte_time_max.count()},
      {"header_ms_max", limits.http.header_time_max.count()},
      {"body_ms_max", limits.http.body_time_max.count()},
      {"body_grace_ms", limits.http.body_grace.count()},
      {"body_bytes_per_second_min", limits.http.body_rate_min},
      {"idle_ms_max", limits.http.idle_time_max.count()},
      {"stall_ms_max", limits.http.stall_time_max.count()},
      {"drain_delay_ms", ms_of("--drain-delay-seconds")},
      {"drain_ms", ms_of("--drain-seconds")},
  };
  if (arguments.text("--response-store") != "none") {
    all.emplace_back("response_store_entries_max", arguments.integer("--response-store-entries"));
    all.emplace_back("response_store_bytes_max", arguments.integer("--response-store-bytes"));
    all.emplace_back("response_store_seconds_max", arguments.integer("--response-store-age"));
  }
  if (limits.grpc != nullptr) {
    all.emplace_back("grpc_connections_max", limits.grpc_connections_max);
    all.emplace_back("grpc_calls_max", limits.grpc->calls_max);
    all.emplace_back("grpc_message_bytes_max", limits.grpc->message_bytes_max);
    all.emplace_back("grpc_bytes_max", number(limits.grpc->memory_bytes_max));
  }
  return all;
}

}  // namespace pelton::apps
