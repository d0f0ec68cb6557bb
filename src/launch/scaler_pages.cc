#include "launch/scaler_pages.h"

#include "base/json_writer.h"

namespace pelton::launch {
namespace {

using autoscaler::PoolDecision;
using State = FleetScaler::PoolState;
using telemetry::PrometheusText;

void write_terms(base::JsonWriter& w, const PoolDecision::Terms& terms) {
  w.begin_object();
  w.key("rate_fast").number(terms.rate_fast).key("rate_slow").number(terms.rate_slow);
  w.key("rate").number(terms.rate).key("service_s").number(terms.service_s);
  w.key("concurrency_target").number(terms.concurrency_target);
  w.key("flow").number(terms.flow).key("backlog").number(terms.backlog);
  w.key("backlog_ahead").number(terms.backlog_ahead);
  w.key("by_flow").integer(terms.by_flow).key("by_demand").integer(terms.by_demand);
  w.key("by_panic").integer(terms.by_panic).key("by_forecast").integer(terms.by_forecast);
  w.key("by_guard").integer(terms.by_guard).key("over_delay").integer(terms.over_delay);
  w.key("start_s_p90").number(terms.start_s_p90);
  w.key("held").integer(terms.held).key("waiting").integer(terms.waiting);
  w.end_object();
}

void write_state(base::JsonWriter& w, const State& state) {
  w.begin_object().key("pool").string(state.pool);
  w.key("state").string(autoscaler::pool_phase_name(state.announcement.phase));
  w.key("eta_s").number(state.announcement.eta_s);
  w.key("failure").string(state.announcement.failure);
  w.key("desired").integer(state.decision.desired);
  w.key("reason").string(autoscaler::reason_name(state.decision.reason));
  w.key("alarm").boolean(state.decision.alarm);
  w.key("decision").string(state.decision.text());
  w.key("starting").integer(state.starting).key("ready").integer(state.ready);
  w.key("draining").integer(state.draining).key("stopping").integer(state.stopping);
  w.key("starts").integer(state.starts).key("failed_starts").integer(state.failed_starts);
  w.key("lost").integer(state.lost).key("terms");
  write_terms(w, state.decision.terms);
  w.end_object();
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

void add_metrics(std::span<const State> states, PrometheusText& text) {
  const auto add = [&](const char* name, PrometheusText::Type type, const char* help, auto value) {
    text.family(name, type, help);
    for (const State& state : states) {
      text.sample({{"pool", state.pool}}, static_cast<double>(value(state)));
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
  add("pelton_autoscaler_leaving_replicas", kGauge, "Replicas that drain or stop.",
      [](const State& one) { return one.draining + one.stopping; });
  add("pelton_autoscaler_starts_total", kCounter, "Replicas that were started.",
      [](const State& one) { return one.starts; });
  add("pelton_autoscaler_failed_starts_total", kCounter, "Of these, ended before they were ready.",
      [](const State& one) { return one.failed_starts; });
  add("pelton_autoscaler_lost_replicas_total", kCounter,
      "Replicas that ended by themselves after they were ready.",
      [](const State& one) { return one.lost; });
  add("pelton_autoscaler_alarm", kGauge, "1: facts are missing, old or impossible.",
      [](const State& one) { return one.decision.alarm ? 1 : 0; });
}

}  // namespace pelton::launch
