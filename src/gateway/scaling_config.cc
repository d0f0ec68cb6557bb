#include "gateway/scaling_config.h"

#include <array>
#include <string_view>
#include <utility>

#include "gateway/config_table.h"

namespace pelton::gateway {
namespace {

using autoscaler::PoolPolicy;

// Flags of `pelton serve` that the launcher gives itself.
constexpr std::array<std::string_view, 6> kOfLauncher = {
    "--port", "--host", "--fleet-port", "--fleet-host", "--fleet-name", "--fleet-key-file"};

// In per cent in the file, a share in the policy.
Result<void> read_percent(const ConfigTable& table, std::string_view key,
                          std::optional<double>& share) {
  std::optional<double> percent;
  TRY(table.read(key, {1, 100}, percent));
  if (percent) share = *percent / 100;
  return {};
}

Result<void> read_rule(const ConfigTable& table, PoolPolicy& policy) {
  std::string rule = "concurrency";
  TRY(table.read("policy", rule));
  if (rule != "concurrency" && rule != "kpa") {
    return table.bad("policy", "must be concurrency, or kpa for Knative's arithmetic");
  }
  policy.rule = rule == "kpa" ? PoolPolicy::Rule::kKnative : PoolPolicy::Rule::kConcurrency;
  return {};
}

Result<void> read_hold(const ConfigTable& table, HoldConfig& hold) {
  TRY(table.read("hold_requests", {1, 1e6}, hold.requests_max));
  TRY(table.read("hold_bytes", {1 << 20, 1e12}, hold.bytes_max));
  TRY(table.read("hold_seconds", {1, 86'400}, hold.time_max_s));
  return table.read("hold_keepalive_seconds", {0.05, 3600}, hold.keep_alive_s);
}

Result<void> read_scale(const ConfigTable& table, ScalingConfig& scaling) {
  TRY(table.expect_only({"min", "max", "policy", "mode", "window", "panic_window",
                         "concurrency_target", "target_utilization", "scale_down_delay",
                         "max_scale_down_rate", "backlog", "idle_to_zero", "hold_requests",
                         "hold_bytes", "hold_seconds", "hold_keepalive_seconds"}));
  PoolPolicy& policy = scaling.policy;
  constexpr double kHour_s = 3600;
  TRY(table.read("min", {0, 10'000}, policy.replicas_min));
  TRY(table.read("max", {1, 10'000}, policy.replicas_max));
  TRY(read_rule(table, policy));
  std::string mode = "act";
  TRY(table.read("mode", mode));
  if (mode != "act" && mode != "advise") return table.bad("mode", "must be act or advise");
  scaling.is_advised_only = mode == "advise";
  TRY(table.read("window", {6, kHour_s}, policy.window_s));
  std::optional<double> share;
  TRY(read_percent(table, "panic_window", share));
  policy.panic_window_share = share.value_or(policy.panic_window_share);
  TRY(table.read("concurrency_target", {0.01, 1e6}, policy.concurrency_target));
  TRY(read_percent(table, "target_utilization", policy.target_utilization));
  TRY(table.read("scale_down_delay", {0, kHour_s}, policy.scale_down_delay_s));
  share.reset();
  TRY(read_percent(table, "max_scale_down_rate", share));
  policy.scale_down_rate_max = share.value_or(policy.scale_down_rate_max);
  TRY(table.read("backlog", {1, kHour_s}, policy.backlog_s));
  TRY(table.read("idle_to_zero", {1, 24 * kHour_s}, policy.idle_to_zero_s));
  TRY(read_hold(table, scaling.hold));
  if (policy.replicas_min > policy.replicas_max) {
    return table.bad("min", fmt::format("({}) is more than 'max' ({})", policy.replicas_min,
                                        policy.replicas_max));
  }
  const Result<void> sound = policy.check();
  if (!sound.ok()) return table.bad("policy", "does not fit: " + sound.error().message);
  return {};
}

Result<void> read_launch(const ConfigTable& table, LaunchConfig& launch) {
  TRY(table.expect_only({"kind", "serve", "start_seconds", "progress_seconds", "stop_grace"}));
  std::string kind = "local";
  TRY(table.read("kind", kind));
  if (kind != "local") return table.bad("kind", "must be local: processes of this machine");
  TRY(table.read("serve", launch.serve));
  if (launch.serve.empty()) {
    return table.bad("serve", "is missing: a list of pelton serve's arguments, the model first");
  }
  for (const std::string& word : launch.serve) {
    for (const std::string_view flag : kOfLauncher) {
      if (word != flag && !word.starts_with(std::string(flag) + "=")) continue;
      return table.bad("serve", fmt::format("has {}, which the launcher gives", flag));
    }
  }
  TRY(table.read("start_seconds", {0.01, 86'400}, launch.start_s));
  TRY(table.read("progress_seconds", {1, 86'400}, launch.progress_s));
  return table.read("stop_grace", {0, 86'400}, launch.stop_grace_s);
}

}  // namespace

Result<void> read_scaling(const ConfigTable& pool, bool is_foreign,
                          std::optional<ScalingConfig>& scaling) {
  TRY(pool.read_table(
      "scale", [&](const ConfigTable& table) { return read_scale(table, scaling.emplace()); }));
  TRY(pool.read_table("launch", [&](const ConfigTable& table) -> Result<void> {
    if (!scaling) return pool.bad("launch", "says nothing without [pool.scale]");
    if (is_foreign) return pool.bad("launch", "starts pelton serve, which is none of other kinds");
    return read_launch(table, scaling->launch.emplace());
  }));
  return {};
}

Result<void> read_autoscaler(const ConfigTable& table, std::string& state_dir) {
  TRY(table.expect_only({"state_dir"}));
  TRY(table.read("state_dir", state_dir));
  if (state_dir.empty()) return table.bad("state_dir", "is empty: a folder for replicas' files");
  return {};
}

}  // namespace pelton::gateway
