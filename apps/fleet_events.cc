#include "apps/fleet_events.h"

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/error.h"
#include "base/json.h"
#include "gateway/interruption.h"
#include "gateway/rollout.h"
#include "net/json_response.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kPath = "/v1/events";
constexpr std::chrono::milliseconds kLook{500};

using States = std::map<std::string, std::string>;

States workers_of(const gateway::Gateway& gateway) {
  States states;
  for (const gateway::Fleet::Row& row : gateway.workers()) {
    states[row.name] = worker_state_name(row.state);
  }
  return states;
}

States rollouts_of(gateway::Gateway& gateway) {
  States states;
  for (const gateway::Rollouts::Shown& one : gateway.rollouts().shown()) {
    states[one.plan.name] =
        fmt::format("{} {:.4g} %", rollout_phase_name(one.state.phase), one.share * 100);
  }
  return states;
}

States replicas_of(const std::vector<launch::FleetScaler::PoolState>& pools) {
  States states;
  for (const launch::FleetScaler::PoolState& one : pools) {
    states[one.pool] = fmt::format("{} of {}", one.ready, one.decision.desired);
  }
  return states;
}

// Those that fire, of each pool.
States alerts_of(const std::string& body) {
  States states;
  const Result<Json> json = Json::parse(body);
  const Json* conditions = json.ok() ? json->find("conditions") : nullptr;
  if (conditions == nullptr || !conditions->is_array()) return states;
  for (const Json& one : conditions->as_array()) {
    if (one.string("state") != std::optional<std::string>("firing")) continue;
    const std::string pool = one.string("pool").value_or("");
    states[one.string("name").value_or("") + (pool.empty() ? "" : " " + pool)] =
        one.string("severity").value_or("firing");
  }
  return states;
}

net::HttpResponse too_many() {
  return gateway::error_answer(
      {},
      {.status = 429,
       .message = fmt::format("too many streams of events are open: at most {} of one key, and {} "
                              "in all",
                              FleetEvents::kStreamsOfOneMax, FleetEvents::kStreamsMax),
       .type = "rate_limit_error",
       .param = {},
       .code = "too_many_event_streams",
       .retry_after_s = 5},
      {});
}

}  // namespace

// What is known of a configuration that was there at the start the history says.
FleetEvents::FleetEvents(Parts parts)
    : parts_(std::move(parts)),
      configuration_(parts_.reload.last_number()),
      log_(parts_.clock.unix_ms()),
      streams_({.news =
                    [this](int64_t after) {
                      gateway::EventLog::Event event = log_.after(after);
                      return console::EventStreams::News{.newest = event.number,
                                                         .data = std::move(event.text)};
                    },
                .ends = nullptr}),
      ticker_({.name = "pelton-events", .interval = kLook}, [this] { look(); }) {}

void FleetEvents::look() {
  const int64_t unix_ms = parts_.clock.unix_ms();
  for (const gateway::ConfigHistory::Entry& entry : parts_.reload.changes_after(configuration_)) {
    configuration_ = entry.number;
    log_.note({.kind = "configuration",
               .name = fmt::format("{}", entry.number),
               .who = entry.who,
               .changes = entry.changes},
              unix_ms);
  }
  log_.note_states("worker", workers_of(parts_.gateway), unix_ms);
  log_.note_states("rollout", rollouts_of(parts_.gateway), unix_ms);
  if (parts_.states) log_.note_states("replicas", replicas_of(parts_.states()), unix_ms);
  if (parts_.conditions) log_.note_states("alert", alerts_of(parts_.conditions()), unix_ms);
}

std::shared_ptr<void> FleetEvents::take_place(const std::string& whose) {
  std::lock_guard lock(mutex_);
  const auto own = open_of_.find(whose);
  const bool is_full = own != open_of_.end() && own->second >= kStreamsOfOneMax;
  if (open_ >= kStreamsMax || is_full) return nullptr;
  ++open_;
  if (!whose.empty()) ++open_of_[whose];
  return {this, [this, whose](void*) { give_back_place(whose); }};
}

void FleetEvents::give_back_place(const std::string& whose) {
  std::lock_guard lock(mutex_);
  --open_;
  const auto own = open_of_.find(whose);
  if (own != open_of_.end() && --own->second == 0) open_of_.erase(own);
}

bool FleetEvents::handle(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange, const std::string& whose,
                         console::EventStreams::MayGoOn may_go_on) {
  if (request.path != kPath) return false;
  if (request.method == "HEAD") {
    streams_.follow(request, exchange);
    return true;
  }
  if (request.method == "GET") {
    std::shared_ptr<void> place = take_place(whose);
    if (place == nullptr) {
      exchange->send(too_many());
      return true;
    }
    streams_.follow(request, exchange,
                    [may_go_on = std::move(may_go_on), place = std::move(place)] {
                      return may_go_on == nullptr || may_go_on();
                    });
    return true;
  }
  net::HttpResponse refused =
      net::json_response(api::error_body(api::method_not_allowed(request.method, kPath)), 405);
  refused.headers.add("Allow", "GET, HEAD");
  exchange->send(std::move(refused));
  return true;
}

}  // namespace pelton::apps
