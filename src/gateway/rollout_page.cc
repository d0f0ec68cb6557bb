#include "gateway/rollout_page.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/error.h"
#include "base/json_writer.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

using Shown = Rollouts::Shown;
using telemetry::PrometheusText;

constexpr std::string_view kRollouts = "/v1/rollouts";
constexpr std::array<RolloutPhase, 4> kPhases = {RolloutPhase::kRunning, RolloutPhase::kPaused,
                                                 RolloutPhase::kPromoted, RolloutPhase::kTakenBack};
constexpr std::array<std::pair<ArmSide, std::string_view>, 2> kSides = {
    {{ArmSide::kCandidate, "candidate"}, {ArmSide::kOthers, "others"}}};

net::HttpResponse refusal(const api::ApiError& error) {
  return net::json_response(api::error_body(error), error.status);
}

api::ApiError no_rollout(std::string_view name) {
  return {.status = 404,
          .message = fmt::format("no roll-out is named '{}'", name),
          .type = "invalid_request_error",
          .param = {},
          .code = "rollout_not_found"};
}

void write_interval(base::JsonWriter& w, const Interval& interval) {
  w.key("low").number(interval.low).key("high").number(interval.high);
}

void write_ratio(base::JsonWriter& w, std::string_view key, const RankTest::Evidence& evidence,
                 const RankTest::Ratio& ratio) {
  w.key(key).begin_object().key("candidate").integer(evidence.values.candidate);
  w.key("others").integer(evidence.values.others).key("ratio").number(ratio.estimate);
  write_interval(w, ratio.interval);
  w.end_object();
}

void write_steps(base::JsonWriter& w, const RolloutPlan& plan) {
  w.key("steps").begin_array();
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    w.begin_object().key("share").number(plan.shares[i]);
    if (i < plan.requests_min.size()) {
      w.key("min_requests").integer(plan.requests_min[i]);
      w.key("min_seconds").number(plan.seconds_min[i]);
    }
    w.end_object();
  }
  w.end_array();
}

void write_report(base::JsonWriter& w, const Shown& one) {
  w.key("tests").begin_array();
  for (const Rollout::Test& test : one.tests) {
    w.begin_object().key("name").string(test.name);
    w.key("log_evidence").number(test.log_evidence).key("log_needed").number(test.log_needed);
    w.end_object();
  }
  w.end_array().key("errors").begin_object();
  const OddsTest::Evidence& errors = one.report.evidence.errors;
  for (const auto& [side, name] : kSides) {
    w.key(name).begin_object().key("requests").integer(errors.requests.of(side));
    w.key("failed").integer(errors.failed.of(side));
    write_interval(w, one.report.failed.of(side));
    w.end_object();
  }
  w.end_object();
  write_ratio(w, "ttft", one.report.evidence.ttft, one.report.ttft);
  write_ratio(w, "length", one.report.evidence.length, one.report.length);
}

void write_rollout(base::JsonWriter& w, const Shown& one) {
  w.begin_object().key("name").string(one.plan.name).key("model").string(one.model);
  w.key("tenant").string(one.tenant).key("arm").string(one.plan.arm).key("pool").string(one.pool);
  w.key("phase").string(rollout_phase_name(one.state.phase));
  w.key("has_workers").boolean(one.has_workers).key("share").number(one.share);
  w.key("step").integer(static_cast<int64_t>(one.state.step));
  w.key("step_seconds").number(one.state.step_s);
  w.key("step_requests").integer(one.report.step_requests);
  w.key("reason").string(one.state.reason).key("why").string(one.state.why);
  w.key("gateways").integer(static_cast<int64_t>(one.gateways));
  w.key("false_alarms").number(one.plan.false_alarms);
  write_steps(w, one.plan);
  write_report(w, one);
  w.end_object();
}

net::HttpResponse page(const std::vector<Shown>& all, std::string_view name) {
  std::string body;
  base::JsonWriter w(body);
  if (name.empty()) {
    w.begin_object().key("rollouts").begin_array();
    for (const Shown& one : all) write_rollout(w, one);
    w.end_array().end_object();
    return net::json_response(std::move(body));
  }
  for (const Shown& one : all) {
    if (one.plan.name != name) continue;
    write_rollout(w, one);
    return net::json_response(std::move(body));
  }
  return refusal(no_rollout(name));
}

api::ApiError from_a_page() {
  return {.status = 403,
          .message =
              "roll-outs are not commanded by pages in a browser (the header 'Origin'); use pelton "
              "fleet rollout",
          .type = "invalid_request_error",
          .param = {},
          .code = "forbidden_origin"};
}

PrometheusText::Labels labels_of(const Shown& one) {
  return {{"rollout", one.plan.name}, {"model", one.model}, {"arm", one.plan.arm}};
}

PrometheusText::Labels with(PrometheusText::Labels labels, std::string_view name,
                            std::string_view value) {
  labels.push_back({name, value});
  return labels;
}

void add_ratio(std::string_view name, std::string_view help, const std::vector<Shown>& all,
               RankTest::Ratio Rollout::Report::*member, PrometheusText& text) {
  text.family(name, PrometheusText::Type::kGauge, help);
  for (const Shown& one : all) {
    const RankTest::Ratio& ratio = one.report.*member;
    text.sample(with(labels_of(one), "bound", "low"), ratio.interval.low);
    text.sample(with(labels_of(one), "bound", "estimate"), ratio.estimate);
    text.sample(with(labels_of(one), "bound", "high"), ratio.interval.high);
  }
}

}  // namespace

bool is_rollout_path(std::string_view path) {
  return path == kRollouts || (path.starts_with(kRollouts) && path[kRollouts.size()] == '/');
}

net::HttpResponse rollout_command_answer(std::string_view name, RolloutCommand command,
                                         std::string_view who, Rollouts& rollouts) {
  const Result<void> done = rollouts.command(name, command, who);
  if (done.ok()) return page(rollouts.shown(), name);
  if (done.error().code == ErrorCode::kNotFound) return refusal(no_rollout(name));
  return refusal({.status = 409,
                  .message = done.error().message,
                  .type = "invalid_request_error",
                  .param = {},
                  .code = "rollout_over"});
}

net::HttpResponse rollout_answer(const net::HttpRequest& request, Rollouts& rollouts) {
  const std::string_view path = request.path;
  const std::string_view rest =
      path.size() > kRollouts.size() ? path.substr(kRollouts.size() + 1) : std::string_view();
  const size_t slash = rest.rfind('/');
  if (slash == std::string_view::npos) {
    if (request.method != "GET" && request.method != "HEAD") {
      return refusal(api::method_not_allowed(request.method, path));
    }
    return page(rollouts.shown(), rest);
  }
  const std::optional<RolloutCommand> command = rollout_command_named(rest.substr(slash + 1));
  if (!command) return refusal(api::not_found(request.method, path));
  if (request.method != "POST") return refusal(api::method_not_allowed(request.method, path));
  if (!request.headers.get("Origin").empty()) return refusal(from_a_page());
  return rollout_command_answer(rest.substr(0, slash), *command, "an operator", rollouts);
}

void add_rollout_metrics(const Rollouts& rollouts, PrometheusText& text) {
  const std::vector<Shown> all = rollouts.shown();
  if (all.empty()) return;
  using Type = PrometheusText::Type;
  text.family("pelton_rollout_share", Type::kGauge,
              "Share of the conversations that the arm of a roll-out gets.");
  for (const Shown& one : all) text.sample(labels_of(one), one.share);
  text.family("pelton_rollout_step", Type::kGauge, "At which of its steps it is, from 0.");
  for (const Shown& one : all) {
    text.sample(labels_of(one), static_cast<double>(one.state.step));
  }
  text.family("pelton_rollout_phase", Type::kGauge, "1 for what it is just now.");
  for (const Shown& one : all) {
    for (const RolloutPhase phase : kPhases) {
      text.sample(with(labels_of(one), "phase", rollout_phase_name(phase)),
                  one.state.phase == phase ? 1 : 0);
    }
  }
  text.family("pelton_rollout_requests", Type::kGauge,
              "Requests that the tests have counted, of all gateways, by side and whether they "
              "failed.");
  for (const Shown& one : all) {
    const OddsTest::Evidence& errors = one.report.evidence.errors;
    for (const auto& [side, name] : kSides) {
      const int64_t failed = errors.failed.of(side);
      const PrometheusText::Labels labels = with(labels_of(one), "side", name);
      text.sample(with(labels, "result", "failed"), static_cast<double>(failed));
      text.sample(with(labels, "result", "ok"),
                  static_cast<double>(errors.requests.of(side) - failed));
    }
  }
  text.family("pelton_rollout_evidence", Type::kGauge,
              "Logarithm of a test's evidence over what it takes: at 1 the arm is taken back.");
  for (const Shown& one : all) {
    for (const Rollout::Test& test : one.tests) {
      text.sample(with(labels_of(one), "test", test.name), test.log_evidence / test.log_needed);
    }
  }
  add_ratio("pelton_rollout_ttft_ratio", "TTFT of the arm over that of the others.", all,
            &Rollout::Report::ttft, text);
  add_ratio("pelton_rollout_length_ratio", "Length of the arm's answers over that of the others.",
            all, &Rollout::Report::length, text);
}

}  // namespace pelton::gateway
