#include "gateway/scaling_config.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cli/command_line.h"
#include "cli/wording.h"
#include "gateway/config_table.h"
#include "gateway/schedule_config.h"

namespace pelton::gateway {
namespace {

using autoscaler::PoolPolicy;

// Flags of `pelton serve` that the launcher gives itself.
constexpr std::array<std::string_view, 6> kOfLauncher = {
    "--port", "--host", "--fleet-port", "--fleet-host", "--fleet-name", "--fleet-key-file"};

constexpr std::array<PoolPolicy::Rule, 3> kRules = {
    PoolPolicy::Rule::kConcurrency, PoolPolicy::Rule::kKnative, PoolPolicy::Rule::kSlo};

// In per cent in the file, a share in the policy.
Result<void> read_percent(const ConfigTable& table, std::string_view key,
                          std::optional<double>& share) {
  std::optional<double> percent;
  TRY(table.read(key, {1, 100}, percent));
  if (percent) share = *percent / 100;
  return {};
}

Result<void> read_rule(const ConfigTable& table, PoolPolicy& policy) {
  std::string rule = std::string(rule_name(policy.rule));
  TRY(table.read("policy", rule));
  const auto found = std::ranges::find(kRules, rule, rule_name);
  if (found == kRules.end()) {
    return table.bad("policy",
                     "must be concurrency, slo to keep 'ttft' and 'itl', or kpa for Knative's "
                     "arithmetic" +
                         cli::did_you_mean(rule, {"concurrency", "slo", "kpa"}));
  }
  policy.rule = *found;
  TRY(table.read("ttft", {1e-3, 3600}, policy.slo.first_token_s));
  TRY(table.read("itl", {1e-4, 60}, policy.slo.gap_s));
  std::optional<double> percent;
  TRY(table.read("percentile", {50, 99.9}, percent));
  if (percent) policy.slo.percentile = *percent / 100;
  const bool has_objective = policy.slo.first_token_s || policy.slo.gap_s;
  if (policy.rule == PoolPolicy::Rule::kSlo && !has_objective) {
    return table.bad("policy", "slo needs 'ttft', 'itl' or both, in seconds");
  }
  if (policy.rule != PoolPolicy::Rule::kSlo && has_objective) {
    return table.bad(policy.slo.first_token_s ? "ttft" : "itl",
                     "is kept by policy = \"slo\" alone");
  }
  if (policy.rule != PoolPolicy::Rule::kSlo && percent) {
    return table.bad("percentile", "says nothing without policy = \"slo\"");
  }
  return {};
}

Result<void> read_limits(const ConfigTable& table, PoolPolicy& policy) {
  constexpr double kGpusMax = 1e5;
  constexpr double kPriceMax = 1e9;
  TRY(table.read("gpus", {0, kGpusMax}, policy.gpus_each));
  TRY(table.read("max_gpus", {1, kGpusMax}, policy.gpus_max));
  TRY(table.read("price", {0, kPriceMax}, policy.price_each));
  TRY(table.read("max_price", {1e-6, kPriceMax}, policy.price_max));
  return read_schedules(table, policy.schedules);
}

// What stands there and would do nothing.
Result<void> check_heeded(const ConfigTable& table, PoolPolicy::Rule rule) {
  const bool is_knative = rule == PoolPolicy::Rule::kKnative;
  if (!is_knative && table.has("panic_window")) {
    return table.bad(
        "panic_window",
        "says nothing without policy = \"kpa\": the others look at the last quarter of "
        "'window', 15 s at most");
  }
  for (const char* key : {"backlog", "max_scale_down_rate"}) {
    if (!is_knative || !table.has(key)) continue;
    return table.bad(key, "says nothing with policy = \"kpa\", which has no such term");
  }
  return {};
}

// The policy's names of settings, as the file has them.
std::string in_words_of_file(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"gpus_max", "max_gpus"}, {"gpus_each", "gpus"},   {"price_max", "max_price"},
      {"price_each", "price"},  {"replicas_max", "max"}, {"replicas_min", "min"}};
  for (const auto& [from, to] : kNames) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      text.replace(at, from.size(), to);
      at += to.size();
    }
  }
  return text;
}

// As a policy's setting is called in the file.
std::string_view key_of(std::string_view field) {
  if (field == "gpus_max") return "max_gpus";
  if (field == "price_max") return "max_price";
  if (field == "target_utilization") return "target_utilization";
  if (field == "standby") return "standby";
  if (field.starts_with("schedules")) return "schedules";
  return "policy";
}

Result<void> read_hold(const ConfigTable& table, HoldConfig& hold) {
  TRY(table.read("hold_requests", {1, 1e6}, hold.requests_max));
  TRY(table.read("hold_bytes", {1 << 20, 1e12}, hold.bytes_max));
  TRY(table.read("hold_seconds", {1, 86'400}, hold.time_max_s));
  std::string kept_alive = hold.sends_blanks ? "whitespace" : "events";
  TRY(table.read("hold_keepalive", kept_alive));
  if (kept_alive != "events" && kept_alive != "whitespace") {
    return table.bad(
        "hold_keepalive",
        "must be events (streams alone) or whitespace (whole answers too: their status "
        "is 200 then, whatever becomes of them)" +
            cli::did_you_mean(kept_alive, {"events", "whitespace"}));
  }
  hold.sends_blanks = kept_alive == "whitespace";
  return table.read("hold_keepalive_seconds", {0.05, 3600}, hold.keep_alive_s);
}

Result<void> read_serve(const ConfigTable& table, LaunchConfig& launch) {
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
  return {};
}

// "NAMESPACE/KIND/NAME", as kubectl has it.
Result<void> read_workload(const ConfigTable& table, LaunchConfig& launch) {
  using Workload = LaunchConfig::Workload;
  constexpr int kPortMax = 65'535;
  std::string text;
  TRY(table.read("workload", text));
  const size_t first = text.find('/');
  const size_t second = text.find('/', first + 1);
  const bool is_whole = first != std::string::npos && second != std::string::npos && first > 0 &&
                        second + 1 < text.size() && text.find('/', second + 1) == std::string::npos;
  const std::string kind = is_whole ? text.substr(first + 1, second - first - 1) : "";
  bool is_known = false;
  for (const Workload one :
       {Workload::kDeployment, Workload::kStatefulSet, Workload::kLeaderWorkerSet}) {
    if (kind != workload_kind_name(one)) continue;
    launch.workload = one;
    is_known = true;
  }
  if (!is_known) {
    return table.bad("workload",
                     "must be NAMESPACE/KIND/NAME, the kind being deployment, statefulset or "
                     "leaderworkerset, as in ml/deployment/pelton-main");
  }
  launch.name_space = text.substr(0, first);
  launch.workload_name = text.substr(second + 1);
  TRY(table.read("port", {1, kPortMax}, launch.port));
  if (launch.port == 0) {
    return table.bad("port",
                     "is missing: the pods' --fleet-port; of other kinds, where they serve");
  }
  constexpr double kUnseen_s = 1800;  // nothing is seen of a container while it loads a model
  launch.progress_s = kUnseen_s;
  return {};
}

// What says whose a job is, where its output goes, how it is asked to end, and where it is looked
// for. sbatch takes every beginning of a name that is no other's, and short ones together or with
// their value.
bool is_ours(std::string_view word) {
  constexpr std::array<std::string_view, 15> kLong = {
      "--array",      "--clusters",  "--comment", "--error",    "--job-name",
      "--no-requeue", "--open-mode", "--output",  "--parsable", "--requeue",
      "--signal",     "--test-only", "--uid",     "--wait",     "--wrap"};
  if (word.starts_with("--")) {
    const std::string_view name = word.substr(0, word.find('='));
    return name.size() > 2 && std::ranges::any_of(kLong, [&](std::string_view flag) {
             return flag.starts_with(name);
           });
  }
  constexpr std::string_view kWithoutValue = "-HIkOQsvV";
  const size_t first = word.find_first_not_of(kWithoutValue);
  return first != std::string_view::npos &&
         std::string_view("aeJMoW").find(word[first]) != std::string_view::npos;
}

Result<void> read_batch(const ConfigTable& table, LaunchConfig& launch) {
  TRY(read_serve(table, launch));
  TRY(table.read("sbatch", launch.sbatch));
  for (const std::string& word : launch.sbatch) {
    if (!word.starts_with('-')) {
      return table.bad("sbatch", fmt::format("has '{}': give --flag=value, each as one", word));
    }
    if (is_ours(word)) {
      return table.bad("sbatch", fmt::format("has {}, which the launcher gives or that hides a job "
                                             "from it",
                                             word));
    }
  }
  return table.read("drain_seconds", {1, 3600}, launch.drain_s);
}

Result<void> read_simulated(const ConfigTable& table, LaunchConfig& launch) {
  constexpr double kDay_s = 86'400;
  TRY(read_serve(table, launch));
  SimulatedConfig& simulated = launch.simulated;
  TRY(table.read("quota", {1, 10'000}, simulated.quota));
  TRY(table.read("lead_seconds", {0, kDay_s}, simulated.lead_s));
  TRY(table.read("lead_p90", {0, kDay_s}, simulated.lead_p90_s));
  if (simulated.lead_p90_s && *simulated.lead_p90_s < simulated.lead_s) {
    return table.bad("lead_p90", fmt::format("({:g}) is less than 'lead_seconds' ({:g})",
                                             *simulated.lead_p90_s, simulated.lead_s));
  }
  if (simulated.lead_p90_s && simulated.lead_s == 0) {
    return table.bad("lead_p90", "says nothing without 'lead_seconds'");
  }
  TRY(table.read_tables("stock_outs", [&](const ConfigTable& one) -> Result<void> {
    TRY(one.expect_only({"at", "for"}));
    SimulatedConfig::StockOut out;
    TRY(one.read("at", {0, 1e9}, out.at_s));
    if (!one.has("for")) return one.bad("for", "is missing: for how many seconds");
    TRY(one.read("for", {0.001, 1e9}, out.for_s));
    simulated.stock_outs.push_back(out);
    return {};
  }));
  TRY(table.read("reclaim_after", {0, 1e9}, simulated.reclaim_after_s));
  TRY(table.read("reclaim_notice", {0, kDay_s}, simulated.reclaim_notice_s));
  if (table.has("reclaim_notice") && simulated.reclaim_after_s == 0) {
    return table.bad("reclaim_notice", "says nothing without 'reclaim_after'");
  }
  if (simulated.reclaim_after_s > 0 && simulated.reclaim_notice_s >= simulated.reclaim_after_s) {
    return table.bad("reclaim_notice",
                     fmt::format("({:g}) is not less than 'reclaim_after' ({:g})",
                                 simulated.reclaim_notice_s, simulated.reclaim_after_s));
  }
  return {};
}

Result<void> read_launch(const ConfigTable& table, bool is_foreign, LaunchConfig& launch) {
  using Kind = LaunchConfig::Kind;
  std::string kind = "local";
  TRY(table.read("kind", kind));
  launch.place = table.place_of("serve");
  if (is_foreign && kind != "kubernetes") {
    return table.bad("kind",
                     "must be kubernetes, whose workload says what runs: the others start pelton "
                     "serve, which is none of the pool's kind" +
                         cli::did_you_mean(kind, {"kubernetes"}));
  }
  if (kind == "local") {
    TRY(table.expect_only(
        {"kind", "serve", "roll", "start_seconds", "progress_seconds", "stop_grace"}));
    TRY(table.read("roll", launch.rolls));
    TRY(read_serve(table, launch));
  } else if (kind == "kubernetes") {
    launch.kind = Kind::kKubernetes;
    TRY(table.expect_only(
        {"kind", "workload", "port", "start_seconds", "progress_seconds", "stop_grace"}));
    TRY(read_workload(table, launch));
  } else if (kind == "slurm") {
    launch.kind = Kind::kSlurm;
    TRY(table.expect_only({"kind", "serve", "sbatch", "drain_seconds", "start_seconds",
                           "progress_seconds", "stop_grace"}));
    TRY(read_batch(table, launch));
  } else if (kind == "simulated") {
    launch.kind = Kind::kSimulated;
    TRY(table.expect_only({"kind", "serve", "quota", "lead_seconds", "lead_p90", "stock_outs",
                           "reclaim_after", "reclaim_notice", "roll", "start_seconds",
                           "progress_seconds", "stop_grace"}));
    TRY(table.read("roll", launch.rolls));
    TRY(read_simulated(table, launch));
  } else {
    const std::optional<std::string> near =
        cli::nearest(kind, {"local", "kubernetes", "slurm", "simulated"});
    return table.bad("kind", fmt::format("must be local (processes of this machine), kubernetes, "
                                         "slurm or simulated{}",
                                         near ? "; did you mean '" + *near + "'?" : ""));
  }
  TRY(table.read("start_seconds", {0.01, 86'400}, launch.start_s));
  TRY(table.read("progress_seconds", {1, 86'400}, launch.progress_s));
  return table.read("stop_grace", {0, 86'400}, launch.stop_grace_s);
}

Result<void> read_lead(const ConfigTable& table, AutoscalerConfig& autoscaler) {
  using Lead = AutoscalerConfig::Lead;
  std::string lead;
  TRY(table.read("lead", lead));
  std::string lease;
  TRY(table.read("lease", lease));
  if (!lead.empty() && lead != "etcd" && lead != "kubernetes") {
    return table.bad("lead",
                     "must be etcd or kubernetes: of several autoscalers one decides, by a lease "
                     "there");
  }
  if (lead.empty() && table.has("lease_seconds")) {
    return table.bad("lease_seconds", "says nothing without 'lead'");
  }
  if (lead != "kubernetes") {
    if (!lease.empty()) return table.bad("lease", "says nothing without lead = \"kubernetes\"");
    autoscaler.lead = lead.empty() ? Lead::kNone : Lead::kEtcd;
    return {};
  }
  autoscaler.lead = Lead::kKubernetes;
  // A label of RFC 1123: namespaces are, and the name becomes a label's value.
  constexpr std::string_view kDns = "abcdefghijklmnopqrstuvwxyz0123456789-";
  constexpr size_t kNameMax = 63;
  const size_t slash = lease.find('/');
  const std::string space = lease.substr(0, slash);
  const std::string name = slash == std::string::npos ? "" : lease.substr(slash + 1);
  const auto is_name = [&](const std::string& one) {
    return !one.empty() && one.size() <= kNameMax &&
           one.find_first_not_of(kDns) == std::string::npos && one.front() != '-' &&
           one.back() != '-';
  };
  if (!is_name(space) || !is_name(name)) {
    return table.bad("lease", "must be NAMESPACE/NAME of a Lease, as in ml/pelton-autoscaler");
  }
  autoscaler.lease_namespace = space;
  autoscaler.lease_name = name;
  return {};
}

}  // namespace

std::string_view rule_name(PoolPolicy::Rule rule) {
  switch (rule) {
    case PoolPolicy::Rule::kConcurrency:
      return "concurrency";
    case PoolPolicy::Rule::kKnative:
      return "kpa";
    case PoolPolicy::Rule::kSlo:
      return "slo";
  }
  return "";
}

std::string_view launch_kind_name(LaunchConfig::Kind kind) {
  switch (kind) {
    case LaunchConfig::Kind::kLocal:
      return "local";
    case LaunchConfig::Kind::kKubernetes:
      return "kubernetes";
    case LaunchConfig::Kind::kSlurm:
      return "slurm";
    case LaunchConfig::Kind::kSimulated:
      return "simulated";
  }
  return "";
}

std::string_view workload_kind_name(LaunchConfig::Workload workload) {
  switch (workload) {
    case LaunchConfig::Workload::kDeployment:
      return "deployment";
    case LaunchConfig::Workload::kStatefulSet:
      return "statefulset";
    case LaunchConfig::Workload::kLeaderWorkerSet:
      return "leaderworkerset";
  }
  return "";
}

void ScalingConfig::scale_by_roles() {
  policy.prefill = {.replicas_min = prefill_min.value_or(1),
                    .replicas_max = prefill_max.value_or(policy.replicas_max)};
}

std::string_view ScalingConfig::unheeded_by_roles() const {
  if (policy.concurrency_target) return "concurrency_target";
  if (policy.scale_down_rate_max != PoolPolicy().scale_down_rate_max) return "max_scale_down_rate";
  return "";
}

std::string_view AutoscalerConfig::place_of(std::string_view key) const {
  auto found = places.find(key);
  if (found == places.end()) found = places.find("");
  return found == places.end() ? std::string_view() : found->second;
}

namespace {

Result<void> read_prefill(const ConfigTable& table, ScalingConfig& scaling) {
  TRY(table.read("prefill_min", {0, 10'000}, scaling.prefill_min));
  TRY(table.read("prefill_max", {1, 10'000}, scaling.prefill_max));
  const int most = scaling.prefill_max.value_or(scaling.policy.replicas_max);
  const int least = scaling.prefill_min.value_or(1);
  if (least > most) {
    return table.bad("prefill_min",
                     fmt::format("({}) is more than 'prefill_max' ({}{})", least, most,
                                 scaling.prefill_max ? "" : ", which is 'max'"));
  }
  if (scaling.policy.prefill) scaling.scale_by_roles();
  return {};
}

}  // namespace

Result<void> read_scale(const ConfigTable& table, ScalingConfig& scaling) {
  TRY(table.expect_only({"min",
                         "max",
                         "prefill_min",
                         "prefill_max",
                         "policy",
                         "ttft",
                         "itl",
                         "percentile",
                         "mode",
                         "priority",
                         "window",
                         "panic_window",
                         "concurrency_target",
                         "target_utilization",
                         "scale_down_delay",
                         "max_scale_down_rate",
                         "backlog",
                         "idle_to_zero",
                         "standby",
                         "gpus",
                         "max_gpus",
                         "price",
                         "max_price",
                         "schedules",
                         "hold_requests",
                         "hold_bytes",
                         "hold_seconds",
                         "hold_keepalive",
                         "hold_keepalive_seconds"}));
  PoolPolicy& policy = scaling.policy;
  constexpr double kHour_s = 3600;
  TRY(table.read("min", {0, 10'000}, policy.replicas_min));
  TRY(table.read("max", {1, 10'000}, policy.replicas_max));
  TRY(read_prefill(table, scaling));
  TRY(read_rule(table, policy));
  TRY(check_heeded(table, policy.rule));
  std::string mode = scaling.is_advised_only ? "advise" : "act";
  TRY(table.read("mode", mode));
  if (mode != "act" && mode != "advise") {
    return table.bad("mode", "must be act or advise" + cli::did_you_mean(mode, {"act", "advise"}));
  }
  scaling.is_advised_only = mode == "advise";
  TRY(table.read("priority", {-1000, 1000}, scaling.priority));
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
  TRY(table.read("standby", {0, 10'000}, policy.standby));
  TRY(read_limits(table, policy));
  TRY(read_hold(table, scaling.hold));
  if (policy.replicas_min > policy.replicas_max) {
    return table.bad("min", fmt::format("({}) is more than 'max' ({})", policy.replicas_min,
                                        policy.replicas_max));
  }
  const Result<void> sound = policy.check();
  if (sound.ok()) return {};
  return table.bad(key_of(sound.error().field),
                   "does not fit: " + in_words_of_file(sound.error().message));
}

namespace {

// Of servers that say neither how many requests they take at a time nor what their steps cost.
Result<void> check_foreign(const ConfigTable& pool, const ScalingConfig& scaling) {
  const bool is_decided_on = scaling.launch || scaling.is_advised_only;
  if (!is_decided_on) return {};
  if (scaling.policy.rule == PoolPolicy::Rule::kSlo) {
    return pool.bad("scale",
                    "'policy' cannot be slo: servers of other kinds do not say what their "
                    "steps cost");
  }
  if (scaling.policy.standby > 0) {
    return pool.bad("scale", "'standby' is of pelton's own replicas");
  }
  if (scaling.policy.concurrency_target) return {};
  return pool.bad("scale",
                  "needs 'concurrency_target': servers of other kinds do not say how many "
                  "requests they take at a time");
}

// What says nothing beside the pool's other keys. Of a whole table: where single keys are tried,
// one of them may be what would give it a meaning.
Result<void> check_meant(const ConfigTable& table, const ScalingConfig& scaling) {
  const PoolPolicy& policy = scaling.policy;
  const bool is_fixed = policy.replicas_min == policy.replicas_max && policy.schedules.empty();
  if (is_fixed && table.has("max_scale_down_rate")) {
    return table.bad("max_scale_down_rate",
                     fmt::format("says nothing where 'min' is 'max' ({})", policy.replicas_max));
  }
  if (table.has("hold_keepalive_seconds") && scaling.hold.keep_alive_s >= scaling.hold.time_max_s) {
    return table.bad("hold_keepalive_seconds",
                     fmt::format("({:g}) is not less than 'hold_seconds' ({:g}): nothing waits so "
                                 "long",
                                 scaling.hold.keep_alive_s, scaling.hold.time_max_s));
  }
  return {};
}

}  // namespace

Result<void> read_scaling(const ConfigTable& pool, bool is_foreign,
                          std::optional<ScalingConfig>& scaling) {
  TRY(pool.read_table("scale", [&](const ConfigTable& table) -> Result<void> {
    TRY(read_scale(table, scaling.emplace()));
    TRY(check_meant(table, *scaling));
    scaling->place = pool.place_of("scale");
    return {};
  }));
  TRY(pool.read_table("launch", [&](const ConfigTable& table) -> Result<void> {
    if (!scaling) return pool.bad("launch", "says nothing without [pool.scale]");
    return read_launch(table, is_foreign, scaling->launch.emplace());
  }));
  return is_foreign && scaling ? check_foreign(pool, *scaling) : Result<void>();
}

Result<void> read_autoscaler(const ConfigTable& table, AutoscalerConfig& autoscaler) {
  TRY(table.expect_only({"state_dir", "gateways", "listen", "keda_listen", "lead", "lease",
                         "lease_seconds", "max_gpus"}));
  for (const char* key : {"", "gateways", "listen", "keda_listen", "lead", "max_gpus"}) {
    if (*key == '\0' || table.has(key)) autoscaler.places[key] = table.place_of(key) + ": ";
  }
  TRY(read_lead(table, autoscaler));
  TRY(table.read("lease_seconds", {3, 60}, autoscaler.lease_s));
  TRY(table.read("max_gpus", {1, 1e6}, autoscaler.gpus_max));
  TRY(table.read("state_dir", autoscaler.state_dir));
  if (autoscaler.state_dir.empty()) {
    return table.bad("state_dir", "is empty: a folder for replicas' files");
  }
  TRY(table.read("gateways", autoscaler.gateways));
  for (const std::string& one : autoscaler.gateways) {
    const Result<net::HttpUrl> url = net::parse_http_url(one);
    if (url.ok() && url->target == "/" && !one.ends_with('/')) continue;
    return table.bad("gateways",
                     "must be URLs of admin listeners without a path, as in http://127.0.0.1:8091");
  }
  TRY(table.read_address("listen", autoscaler.host, autoscaler.port));
  return table.read_address("keda_listen", autoscaler.keda_host, autoscaler.keda_port);
}

}  // namespace pelton::gateway
