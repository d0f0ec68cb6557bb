#include "launch/scaler_pages.h"

#include <algorithm>
#include <utility>

#include "autoscaler/facts_log.h"
#include "base/json_writer.h"

namespace pelton::launch {
namespace {

using State = FleetScaler::PoolState;
using telemetry::PrometheusText;

void write_state(base::JsonWriter& w, const State& state) {
  w.begin_object().key("pool").string(state.pool);
  if (!state.role.empty()) w.key("served").string(state.served).key("role").string(state.role);
  w.key("state").string(autoscaler::pool_phase_name(state.announcement.phase));
  w.key("eta_s").number(state.announcement.eta_s);
  w.key("failure").string(state.announcement.failure);
  w.key("desired").integer(state.decision.desired);
  w.key("reason").string(autoscaler::reason_name(state.decision.reason));
  w.key("alarm").boolean(state.decision.alarm);
  w.key("decision").string(state.decision.text());
  w.key("starting").integer(state.starting).key("ready").integer(state.ready);
  w.key("draining").integer(state.draining).key("stopping").integer(state.stopping);
  w.key("standby").integer(state.standby).key("woken").integer(state.woken);
  w.key("starts").integer(state.starts).key("failed_starts").integer(state.failed_starts);
  w.key("lost").integer(state.lost).key("last_failure").string(state.last_failure);
  w.key("silent_gateways").begin_array();
  for (const auto& one : state.silent_gateways) w.string(one.url);
  w.end_array().key("gateway_troubles").begin_object();
  for (const auto& one : state.silent_gateways) {
    if (!one.why.empty()) w.key(one.url).string(one.why);
  }
  w.end_object();
  if (state.gpus_most) w.key("gpus_most").integer(*state.gpus_most);
  // Of those that run with other arguments than one that is started now, and what is done about it.
  w.key("outdated").begin_object();
  for (const auto& [name, how] : state.outdated) w.key(name).string(how);
  w.end_object().key("rolls").boolean(state.rolls).key("terms");
  autoscaler::write_terms(w, state.decision.terms);
  w.end_object();
}

// A pool whose requests are split has its replicas by role.
PrometheusText::Labels labels_of(const State& state) {
  if (state.role.empty()) return {{"pool", state.pool}};
  return {{"pool", state.served}, {"role", state.role}};
}

// Where a start's time goes: to whoever gives a machine and a process, or to the model.
void add_start_metrics(std::span<const State> states, PrometheusText& text) {
  text.family("pelton_autoscaler_start_seconds", PrometheusText::Type::kHistogram,
              "Of replicas that became ready: from the order until one listens (order), and until "
              "it is ready (load).");
  for (const State& state : states) {
    for (const bool is_load : {false, true}) {
      PrometheusText::Labels labels = labels_of(state);
      labels.push_back({"phase", is_load ? "load" : "order"});
      text.histogram(labels, StartSeconds::bounds(),
                     is_load ? state.start_seconds.load() : state.start_seconds.order());
    }
  }
}

// Of pools of two roles: by both.
void add_role_metrics(std::span<const State> states, PrometheusText& text) {
  const auto add = [&](const char* name, const char* help, auto value) {
    text.family(name, PrometheusText::Type::kGauge, help);
    for (const State& state : states) {
      const autoscaler::PoolDecision::Roles& roles = state.decision.terms.roles;
      if (!roles.is_paired) continue;
      for (const std::string_view role : {"prefill", "decode"}) {
        text.sample({{"pool", state.served}, {"role", role}},
                    static_cast<double>(value(roles.pair, role == "prefill")));
      }
    }
  };
  add("pelton_autoscaler_needed_replicas",
      "Replicas of a role that would keep its share of the objective, whatever the limits allow.",
      [](const autoscaler::PairDecision& pair, bool is_prefill) {
        return is_prefill ? pair.needed.prefill : pair.needed.decode;
      });
  add("pelton_autoscaler_lateness_ratio",
      "Forecast for the replicas that there should be, over the objective: of first tokens "
      "(prefill) and of gaps (decode); 1000000 and more: they do not keep up.",
      [](const autoscaler::PairDecision& pair, bool is_prefill) {
        return is_prefill ? pair.first_token_late : pair.gap_late;
      });
}

}  // namespace

std::string states_body(std::span<const State> states) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("pools").begin_array();
  for (const State& state : states) write_state(w, state);
  w.end_array().end_object();
  return body;
}

std::string replicas_sample(std::span<const State> states) {
  std::string members = "\"replicas\":";
  base::JsonWriter w(members);
  w.begin_object();
  for (const State& state : states.first(std::min(states.size(), kPoolsShown))) {
    w.key(state.pool).begin_object().key("desired").integer(state.decision.desired);
    w.key("ready").integer(state.ready).key("starting").integer(state.starting);
    w.key("leaving").integer(state.draining + state.stopping).end_object();
  }
  w.end_object();
  return members;
}

std::map<std::string, std::string> state_rows(std::span<const State> states) {
  std::map<std::string, std::string> rows;
  for (const State& state : states) {
    base::JsonWriter w(rows[state.pool]);
    write_state(w, state);
  }
  return rows;
}

void add_metrics(std::span<const State> states, PrometheusText& text) {
  const auto add = [&](const char* name, PrometheusText::Type type, const char* help, auto value) {
    text.family(name, type, help);
    for (const State& state : states) {
      text.sample(labels_of(state), static_cast<double>(value(state)));
    }
  };
  constexpr auto kGauge = PrometheusText::Type::kGauge;
  constexpr auto kCounter = PrometheusText::Type::kCounter;
  add("pelton_autoscaler_desired_replicas", kGauge, "Replicas that there should be.",
      [](const State& one) { return one.decision.desired; });
  add("pelton_autoscaler_starting_replicas", kGauge, "Replicas that are starting.",
      [](const State& one) { return one.starting; });
  add("pelton_autoscaler_ready_replicas", kGauge, "Replicas that take requests.",
      [](const State& one) { return one.ready; });
  add("pelton_autoscaler_standby_replicas", kGauge,
      "Replicas that are loaded and kept from requests until they are woken.",
      [](const State& one) { return one.standby; });
  add("pelton_autoscaler_outdated_replicas", kGauge,
      "Replicas that run with other arguments, or another build, than one that is started now.",
      [](const State& one) { return static_cast<int64_t>(one.outdated.size()); });
  add("pelton_autoscaler_leaving_replicas", kGauge, "Replicas that drain or stop.",
      [](const State& one) { return one.draining + one.stopping; });
  add("pelton_autoscaler_starts_total", kCounter, "Replicas that were started.",
      [](const State& one) { return one.starts; });
  add_start_metrics(states, text);
  add("pelton_autoscaler_wakes_total", kCounter, "Replicas on standby that were woken.",
      [](const State& one) { return one.woken; });
  add("pelton_autoscaler_failed_starts_total", kCounter, "Of these, ended before they were ready.",
      [](const State& one) { return one.failed_starts; });
  add("pelton_autoscaler_lost_replicas_total", kCounter,
      "Replicas that ended by themselves after they were ready.",
      [](const State& one) { return one.lost; });
  add("pelton_autoscaler_objective_missed", kGauge,
      "1: at the rate of now the replicas that are ready do not keep the objective.",
      [](const State& one) { return one.decision.terms.slo.is_missed ? 1 : 0; });
  add("pelton_autoscaler_ttft_seconds", kGauge,
      "Time to the first token that the objective's share of requests keeps, as forecast for the "
      "replicas that are ready; 0: no objective, not known, or too few replicas to keep up "
      "(pelton_autoscaler_objective_missed).",
      [](const State& one) { return one.decision.terms.slo.first_token_s; });
  add("pelton_autoscaler_itl_seconds", kGauge,
      "Time between two tokens that the objective's share of gaps keeps, likewise.",
      [](const State& one) { return one.decision.terms.slo.gap_s; });
  add("pelton_autoscaler_alarm", kGauge,
      "1: facts are missing, old (of any gateway) or impossible, or a start is late.",
      [](const State& one) { return one.decision.alarm ? 1 : 0; });
  add_role_metrics(states, text);
}

net::HttpResponse scaler_answer(const net::HttpRequest& request, std::span<const State> states) {
  const auto answer = [](std::string_view type, std::string body) {
    net::HttpResponse response{.status = 200, .headers = {}, .body = std::move(body)};
    response.headers.add("Content-Type", std::string(type));
    return response;
  };
  const bool is_known =
      request.path == "/v1/autoscaler" || request.path == "/metrics" || request.path == "/health";
  if (!is_known) {
    return net::error_response(
        {.status = 404, .code = "not_found", .message = "there is nothing at " + request.path});
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return net::error_response(
        {.status = 405, .code = "method_not_allowed", .message = request.path + " is for GET"});
  }
  if (request.path == "/health") return answer("text/plain", "");
  if (request.path == "/v1/autoscaler") return answer("application/json", states_body(states));
  PrometheusText text;
  add_metrics(states, text);
  return answer(telemetry::kPrometheusContentType, text.text());
}

}  // namespace pelton::launch
