#include "gateway/rollout_config.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "cli/wording.h"
#include "gateway/config_table.h"

namespace pelton::gateway {
namespace {

constexpr size_t kStepsMax = 20;
constexpr double kRequestsMax = 1e9;
constexpr double kSecondsMax = 90.0 * 86'400;
constexpr double kFalseAlarmsMin = 1e-4;  // per cent, as the next ones
constexpr double kFalseAlarmsMax = 10;
constexpr double kToleranceMax = 1000;

using Watched = RolloutPlan::Watched;
constexpr std::array<std::pair<std::string_view, bool Watched::*>, 3> kWatched = {
    {{"errors", &Watched::errors}, {"ttft", &Watched::ttft}, {"length", &Watched::length}}};

Result<void> read_steps(const ConfigTable& table, RolloutPlan& plan) {
  std::vector<double> percents;
  TRY(table.read_numbers("steps", {0, 100}, percents));
  if (percents.empty()) return {};
  if (percents.size() > kStepsMax) {
    return table.bad("steps", fmt::format("has more than {} steps", kStepsMax));
  }
  double before = 0;
  for (const double percent : percents) {
    if (!(percent > 0)) return table.bad("steps", "has a share of 0: nobody would get a request");
    if (percent <= before) {
      return table.bad("steps", fmt::format("goes from {} % to {} %: each share is more than the "
                                            "one before, as in [1, 5, 25, 100]",
                                            before, percent));
    }
    before = percent;
  }
  if (before != 100) return table.bad("steps", "must end with 100");
  if (percents.size() == 1) {
    return table.bad("steps", "has one step only, so nothing is tried before all get it");
  }
  plan.shares.clear();
  for (const double percent : percents) plan.shares.push_back(percent / 100);
  return {};
}

// One number for all steps but the last, or one for each of these.
template <typename Number>
Result<void> read_gates(const ConfigTable& table, std::string_view key,
                        const ConfigTable::Bounds& bounds, std::vector<Number>& gates) {
  std::vector<double> numbers = {static_cast<double>(gates.front())};
  const size_t steps = gates.size();
  if (table.has(key)) {
    numbers.clear();
    TRY(table.read_numbers(key, bounds, numbers));
  }
  if (numbers.size() == 1) numbers.resize(steps, numbers.front());
  if (numbers.size() != steps) {
    return table.bad(key, fmt::format("has {} numbers for the {} steps before the last one",
                                      numbers.size(), steps));
  }
  for (size_t i = 0; i < steps; ++i) {
    gates[i] = static_cast<Number>(numbers[i]);
    if (static_cast<double>(gates[i]) != numbers[i]) {
      return table.bad(key, "must be whole numbers");
    }
  }
  return {};
}

Result<void> read_percent(const ConfigTable& table, std::string_view key,
                          const ConfigTable::Bounds& bounds, double& share) {
  double percent = share * 100;
  TRY(table.read(key, bounds, percent));
  share = percent / 100;
  return {};
}

Result<void> read_watch(const ConfigTable& table, Watched& watched) {
  if (!table.has("watch")) return {};
  std::vector<std::string> names;
  TRY(table.read("watch", names));
  watched = {.errors = false, .ttft = false, .length = false};
  for (const std::string& name : names) {
    const auto found = std::ranges::find(kWatched, name, [](const auto& one) { return one.first; });
    if (found == kWatched.end()) {
      return table.bad("watch", fmt::format("has '{}'{}; there are errors, ttft and length", name,
                                            cli::did_you_mean(name, {"errors", "ttft", "length"})));
    }
    watched.*(found->second) = true;
  }
  return {};
}

// The arm, and that there is something to compare it with.
Result<void> check_arm(const ConfigTable& table, const RouteConfig& route,
                       const RolloutPlan& plan) {
  const auto arm = std::ranges::find(route.arms, plan.arm, &RouteArm::name);
  if (arm == route.arms.end()) {
    std::vector<std::string> names;
    for (const RouteArm& one : route.arms) names.push_back(one.name);
    return table.bad("arm", fmt::format("names no arm of the route: '{}'{}", plan.arm,
                                        cli::did_you_mean(plan.arm, names)));
  }
  if (arm->has_weight) {
    return table.bad("arm", fmt::format("'{}' has a weight in 'to', which means nothing: its "
                                        "share is as 'steps' say",
                                        plan.arm));
  }
  double others = 0;
  for (const RouteArm& one : route.arms) {
    if (&one == &*arm) continue;
    others += one.weight;
    if (one.pool == arm->pool) {
      return table.bad("arm", fmt::format("'{}' has the pool '{}', which is the arm '{}''s too: "
                                          "there would be no difference",
                                          plan.arm, one.pool, one.name));
    }
  }
  if (!(others > 0)) {
    return table.bad("arm", fmt::format("'{}' has no weight above 0 beside it: another arm has the "
                                        "rest, and is what it is compared with",
                                        plan.arm));
  }
  if (route.sticky == RouteConfig::Sticky::kTenant) {
    return table.bad("min_requests",
                     "cannot be met with sticky = \"tenant\": tenants are drawn then, and one "
                     "request of each counts; use session, user or none");
  }
  return {};
}

std::string numbers_text(const auto& numbers, double factor) {
  std::string text;
  for (const auto number : numbers) {
    text +=
        fmt::format("{}{:.12g}", text.empty() ? "" : ", ", static_cast<double>(number) * factor);
  }
  return "[" + text + "]";
}

std::string quoted(std::string_view text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

}  // namespace

Result<void> read_rollout(const ConfigTable& table, const GatewayConfig& config,
                          RouteConfig& route) {
  TRY(table.expect_only({"arm", "name", "steps", "min_requests", "min_seconds", "false_alarms",
                         "watch", "error_tolerance", "ttft_tolerance", "length_tolerance"}));
  RolloutPlan plan;
  TRY(table.read_name("arm", plan.arm));
  TRY(check_arm(table, route, plan));
  plan.name = plan.arm;
  if (table.has("name")) {
    plan.name.clear();
    TRY(table.read_name("name", plan.name));
  }
  const std::string_view named = table.has("name") ? "name" : "arm";
  if (plan.name.find('/') != std::string::npos) {
    return table.bad(named, fmt::format("'{}' names the roll-out, and has a '/': give it another "
                                        "'name'",
                                        plan.name));
  }
  for (const RouteConfig& other : config.routes) {
    if (!other.rollout || other.rollout->name != plan.name) continue;
    return table.bad(named,
                     fmt::format("'{}' is another roll-out's name: give each a 'name'", plan.name));
  }
  TRY(read_steps(table, plan));
  plan.requests_min.resize(plan.shares.size() - 1, plan.requests_min.front());
  plan.seconds_min.resize(plan.shares.size() - 1, plan.seconds_min.front());
  TRY(read_gates(table, "min_requests", {1, kRequestsMax}, plan.requests_min));
  TRY(read_gates(table, "min_seconds", {0, kSecondsMax}, plan.seconds_min));
  TRY(read_percent(table, "false_alarms", {kFalseAlarmsMin, kFalseAlarmsMax}, plan.false_alarms));
  TRY(read_watch(table, plan.watched));
  TRY(read_percent(table, "error_tolerance", {0, kToleranceMax}, plan.error_tolerance));
  TRY(read_percent(table, "ttft_tolerance", {0, kToleranceMax}, plan.ttft_tolerance));
  TRY(read_percent(table, "length_tolerance", {0, kToleranceMax}, plan.length_tolerance));
  if (config.rollouts_file.empty()) {
    return table.bad("arm",
                     "is not rolled out without 'rollouts_file' of [gateway], which keeps how far "
                     "it has come: what was taken back would come again with the next start");
  }
  route.rollout = std::move(plan);
  return {};
}

std::string rollout_text(const RolloutPlan& plan) {
  std::string watched;
  for (const auto& [name, member] : kWatched) {
    if (plan.watched.*member) watched += (watched.empty() ? "" : ", ") + quoted(name);
  }
  return fmt::format(
      "\n[route.rollout]\narm = {}\nname = {}\nsteps = {}\nmin_requests = {}\nmin_seconds = {}\n"
      "false_alarms = {:.12g}\nwatch = [{}]\nerror_tolerance = {:.12g}\n"
      "ttft_tolerance = {:.12g}\nlength_tolerance = {:.12g}\n",
      quoted(plan.arm), quoted(plan.name), numbers_text(plan.shares, 100),
      numbers_text(plan.requests_min, 1), numbers_text(plan.seconds_min, 1),
      plan.false_alarms * 100, watched, plan.error_tolerance * 100, plan.ttft_tolerance * 100,
      plan.length_tolerance * 100);
}

}  // namespace pelton::gateway
