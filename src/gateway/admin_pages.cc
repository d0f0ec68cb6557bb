#include "gateway/admin_pages.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/error.h"
#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kWorkers = "/v1/workers";
constexpr std::array<std::pair<std::string_view, Fleet::Command>, 4> kCommands = {
    {{"drain", Fleet::Command::kDrain},
     {"undrain", Fleet::Command::kUndrain},
     {"eject", Fleet::Command::kEject},
     {"restore", Fleet::Command::kRestore}}};

net::HttpResponse answer(std::string type, std::string body) {
  net::HttpResponse response{.status = 200, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", std::move(type));
  return response;
}

net::HttpResponse refusal(const api::ApiError& error) {
  net::HttpResponse response{.status = error.status, .headers = {}, .body = api::error_body(error)};
  response.headers.add("Content-Type", "application/json");
  return response;
}

void write_row(base::JsonWriter& w, const Fleet::Row& row) {
  w.begin_object().key("name").string(row.name).key("pool").string(row.pool);
  w.key("address").string(row.url).key("state").string(worker_state_name(row.state));
  w.key("incarnation").string(row.record.incarnation).key("version").string(row.record.version);
  w.key("zone").string(row.record.zone).key("models").begin_array();
  for (const std::string& model : row.record.models) w.string(model);
  w.end_array().key("slots").integer(row.record.slots).key("running").integer(row.load.running);
  w.key("waiting").integer(row.load.waiting).key("uncounted").integer(row.uncounted);
  w.key("report_age_ms").integer(row.report_age_ms).key("requests").integer(row.requests);
  w.key("failures").integer(row.failures).key("reason").string(row.reason);
  w.key("names_agree").boolean(row.names_agree).key("bias").number(row.bias);
  w.key("kv_used").number(row.load.kv_used).end_object();
}

std::string workers_body(const std::vector<Fleet::Row>& rows) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("workers").begin_array();
  for (const Fleet::Row& row : rows) write_row(w, row);
  w.end_array().end_object();
  return body;
}

std::string metrics_text(const std::vector<Fleet::Row>& rows, const Fleet::IndexSize& index,
                         const RelayCounters& counters) {
  std::string out;
  const auto add = [&](std::string_view name, std::string_view type, int64_t value) {
    out +=
        fmt::format("# TYPE pelton_gateway_{0} {1}\npelton_gateway_{0} {2}\n", name, type, value);
  };
  add("requests_total", "counter", counters.requests);
  add("answered_total", "counter", counters.answered);
  add("retries_total", "counter", counters.retries);
  add("migrations_total", "counter", counters.moves);
  add("streams_interrupted_total", "counter", counters.interrupted);
  add("unserved_total", "counter", counters.unserved);
  add("quarantined_total", "counter", counters.quarantined);
  add("clients_left_total", "counter", counters.left);
  add("requests_open", "gauge", counters.open);
  add("prompts_named_total", "counter", counters.named);
  add("expected_hit_tokens_total", "counter", counters.expected_hit_tokens);
  add("real_hit_tokens_total", "counter", counters.real_hit_tokens);
  add("hit_mismatch_total", "counter", counters.hit_mismatches);
  add("prompt_mismatch_total", "counter", counters.prompt_mismatches);
  add("index_names", "gauge", static_cast<int64_t>(index.names));
  add("index_evictions_total", "counter", index.evictions);
  add("config_reloads_total", "counter", counters.reloads);
  add("config_reloads_refused_total", "counter", counters.reloads_refused);
  out += "# TYPE pelton_gateway_workers gauge\n";
  for (int i = 0; i <= static_cast<int>(cluster::WorkerState::kDown); ++i) {
    const auto state = static_cast<cluster::WorkerState>(i);
    const auto count =
        std::ranges::count_if(rows, [&](const Fleet::Row& row) { return row.state == state; });
    out +=
        fmt::format("pelton_gateway_workers{{state=\"{}\"}} {}\n", worker_state_name(state), count);
  }
  return out;
}

api::ApiError no_worker(std::string_view name) {
  return {.status = 404,
          .message = fmt::format("no worker is named '{}'", name),
          .type = "invalid_request_error",
          .param = {},
          .code = "worker_not_found"};
}

// "NAME/drain" or "NAME".
net::HttpResponse worker_answer(const net::HttpRequest& request, std::string_view rest,
                                Fleet& fleet) {
  const size_t slash = rest.find('/');
  const std::string_view name = rest.substr(0, slash);
  if (slash == std::string_view::npos) {
    for (const Fleet::Row& row : fleet.rows()) {
      if (row.name != name) continue;
      std::string body;
      base::JsonWriter w(body);
      write_row(w, row);
      return answer("application/json", std::move(body));
    }
    return refusal(no_worker(name));
  }
  for (const auto& [word, command] : kCommands) {
    if (rest.substr(slash + 1) != word) continue;
    if (request.method != "POST") {
      return refusal(api::method_not_allowed(request.method, request.path));
    }
    if (fleet.command(name, command)) return answer("application/json", "{}");
    return refusal(no_worker(name));
  }
  return refusal(api::not_found(request.method, request.path));
}

}  // namespace

net::HttpResponse admin_answer(const net::HttpRequest& request, Fleet& fleet,
                               const RelayCounters& counters) {
  const std::string_view path = request.path;
  if (path == kWorkers) return answer("application/json", workers_body(fleet.rows()));
  if (path == "/metrics") {
    return answer("text/plain; version=0.0.4",
                  metrics_text(fleet.rows(), fleet.index_size(), counters));
  }
  if (path.starts_with(kWorkers) && path.size() > kWorkers.size() + 1) {
    return worker_answer(request, path.substr(kWorkers.size() + 1), fleet);
  }
  return refusal(api::not_found(request.method, request.path));
}

}  // namespace pelton::gateway
