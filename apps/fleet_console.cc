#include "apps/fleet_console.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "apps/version.h"
#include "console/pages.h"
#include "launch/scaler_pages.h"
#include "net/json_response.h"

namespace pelton::apps {
namespace {

// What has nothing to show is not there: arms, where no requests are split.
std::vector<std::string_view> pages_of(const FleetConsole::Parts& parts) {
  std::vector<std::string_view> pages;
  if (parts.gateway != nullptr) pages.emplace_back("fleet");
  if (parts.states) pages.emplace_back("scaling");
  if (parts.computed != nullptr && parts.computed->has_capacity()) pages.emplace_back("capacity");
  if (parts.gateway == nullptr) return pages;
  pages.insert(pages.end(), {"requests", "routing"});
  if (parts.gateway->has_routes()) pages.emplace_back("splits");
  if (parts.has_chains) pages.emplace_back("chain_figures");
  pages.insert(pages.end(), {"health", "configuration"});
  return pages;
}

}  // namespace

FleetConsole::FleetConsole(Parts parts)
    : parts_(std::move(parts)),
      operations_(parts_.gateway == nullptr ? nullptr
                                            : std::make_unique<ConsoleOperations>(
                                                  *parts_.gateway, *parts_.gate, parts_.reload,
                                                  parts_.config_worker, parts_.clock, parts_.log)),
      feed_(parts_.clock.unix_ms() / 1000),
      streams_({.news = [this](int64_t after) { return feed_.after(after); }, .ends = nullptr}),
      conditions_(parts_.clock.now_ns()),
      ticker_({.name = "pelton-console", .interval = std::chrono::seconds(1)}, [this] { note(); }) {
}

void FleetConsole::note() {
  const int64_t unix_ms = parts_.clock.unix_ms();
  const States states = parts_.states ? parts_.states() : States();
  note_conditions(states);
  const bool is_watched = streams_.open() > 0;
  std::string sample;
  std::vector<console::Feed::Table> tables;
  if (parts_.gateway != nullptr) {
    const gateway::FleetSampler::Sums sums = parts_.gateway->sums();
    const std::vector<gateway::Fleet::Row> workers = parts_.gateway->workers();
    sample = sampler_.sample(sums, workers, parts_.clock.now_ns(), unix_ms);
    if (is_watched) {
      tables.push_back({.name = "workers", .rows = gateway::worker_rows(workers)});
      tables.push_back({.name = "requests", .rows = gateway::request_rows(sums)});
      tables.push_back({.name = "commands", .rows = operations_->rows()});
    }
  } else {
    sample = fmt::format("\"at\":{}", unix_ms);
  }
  if (parts_.states) {
    sample += "," + launch::replicas_sample(states);
    decisions_.note(states, unix_ms);
    if (is_watched) {
      tables.push_back({.name = "scaling", .rows = launch::state_rows(states)});
      tables.push_back({.name = "decisions", .rows = decisions_.rows()});
    }
  }
  feed_.note(std::move(sample), std::move(tables));
}

void FleetConsole::note_conditions(const States& states) {
  if (parts_.gateway == nullptr) return;
  gateway::FleetConditions::Counts counts = parts_.gateway->condition_counts();
  for (gateway::FleetConditions::Pool& pool : counts.pools) {
    const auto state = std::ranges::find(states, pool.name, &launch::FleetScaler::PoolState::pool);
    if (state == states.end()) continue;
    pool.is_scaled = true;
    pool.desired = state->decision.desired;
    pool.ready = state->ready;
    pool.failed_starts = state->failed_starts;
    pool.lost = state->lost;
    pool.alarm = state->decision.alarm;
  }
  conditions_.note(counts, parts_.clock.now_ns());
}

std::optional<std::string> FleetConsole::signed_in(const net::HttpRequest& request) const {
  return operations_ == nullptr ? std::nullopt : operations_->signed_in(request);
}

bool FleetConsole::handle(const net::HttpRequest& request,
                          const std::shared_ptr<net::Exchange>& exchange,
                          console::EventStreams::MayGoOn may_go_on) {
  if (parts_.gateway != nullptr && request.path == "/v1/conditions") {
    const bool reads = request.method == "GET" || request.method == "HEAD";
    exchange->send(reads ? net::json_response(conditions_.body())
                         : console::only_for_reading(request));
    return true;
  }
  if (!console::is_console_path(request.path)) return false;
  if (operations_ != nullptr && operations_->handle(request, exchange)) return true;
  if (request.method != "GET" && request.method != "HEAD") {
    exchange->send(console::only_for_reading(request));
  } else if (request.path == "/console/fleet") {
    streams_.follow(request, exchange, std::move(may_go_on));
  } else {
    exchange->send(console::console_reply(
        request, {.version = kVersion,
                  .pages = pages_of(parts_),
                  .chat_port = chat_port_,
                  .has_what_if =
                      parts_.states && parts_.computed != nullptr && parts_.computed->has_what_if(),
                  .has_sign_in = operations_ != nullptr && operations_->may_sign_in(),
                  .asks_key = parts_.gate != nullptr && parts_.gate->asks()}));
  }
  return true;
}

}  // namespace pelton::apps
