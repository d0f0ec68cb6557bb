#include "gateway/config_text.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "gateway/rollout_config.h"
#include "gateway/schedule_config.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

// A TOML basic string is written as JSON's.
std::string quoted(std::string_view text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

std::string list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out += (out.size() > 1 ? ", " : "") + quoted(text);
  return out + "]";
}

void put(std::string& out, std::string_view key, const std::string& value) {
  out += fmt::format("{} = {}\n", key, value);
}

// What is empty is left out: an empty text would be a mistake.
void put_text(std::string& out, std::string_view key, std::string_view text) {
  if (!text.empty()) put(out, key, quoted(text));
}

void put_percent(std::string& out, std::string_view key, std::optional<double> share) {
  if (share) put(out, key, fmt::format("{:.17g}", *share * 100));
}

void put_number(std::string& out, std::string_view key, std::optional<double> number) {
  if (number) put(out, key, fmt::format("{}", *number));
}

void put_simulated(std::string& out, const SimulatedConfig& simulated) {
  put(out, "quota", std::to_string(simulated.quota));
  put_number(out, "lead_seconds", simulated.lead_s);
  put_number(out, "lead_p90", simulated.lead_p90_s);
  std::string outs;
  for (const SimulatedConfig::StockOut& one : simulated.stock_outs) {
    outs += fmt::format("{}{{at = {}, for = {}}}", outs.empty() ? "" : ", ", one.at_s, one.for_s);
  }
  put(out, "stock_outs", "[" + outs + "]");
  put_number(out, "reclaim_after", simulated.reclaim_after_s);
  if (simulated.reclaim_after_s > 0) put_number(out, "reclaim_notice", simulated.reclaim_notice_s);
}

void put_scaling(std::string& out, const ScalingConfig& scaling) {
  using autoscaler::PoolPolicy;
  const PoolPolicy& policy = scaling.policy;
  out += "\n[pool.scale]\n";
  put(out, "min", fmt::format("{}", policy.replicas_min));
  put(out, "max", fmt::format("{}", policy.replicas_max));
  if (scaling.prefill_min) put(out, "prefill_min", fmt::format("{}", *scaling.prefill_min));
  if (scaling.prefill_max) put(out, "prefill_max", fmt::format("{}", *scaling.prefill_max));
  put_text(out, "policy", rule_name(policy.rule));
  if (policy.rule == PoolPolicy::Rule::kSlo) {
    put_number(out, "ttft", policy.slo.first_token_s);
    put_number(out, "itl", policy.slo.gap_s);
    put_percent(out, "percentile", policy.slo.percentile);
  }
  put_text(out, "mode", scaling.is_advised_only ? "advise" : "act");
  put(out, "priority", fmt::format("{}", scaling.priority));
  put_number(out, "window", policy.window_s);
  const bool is_knative = policy.rule == PoolPolicy::Rule::kKnative;
  if (is_knative) put_percent(out, "panic_window", policy.panic_window_share);
  put_number(out, "concurrency_target", policy.concurrency_target);
  put_percent(out, "target_utilization", policy.target_utilization);
  put_number(out, "scale_down_delay", policy.scale_down_delay_s);
  const bool is_fixed = policy.replicas_min == policy.replicas_max && policy.schedules.empty();
  if (!is_knative && !policy.prefill && !is_fixed) {
    put_percent(out, "max_scale_down_rate", policy.scale_down_rate_max);
  }
  put_number(out, "backlog", policy.backlog_s);
  put_number(out, "idle_to_zero", policy.idle_to_zero_s);
  put(out, "standby", fmt::format("{}", policy.standby));
  put(out, "gpus", fmt::format("{}", policy.gpus_each));
  if (policy.gpus_max) put(out, "max_gpus", fmt::format("{}", *policy.gpus_max));
  put_number(out, "price", policy.price_each);
  put_number(out, "max_price", policy.price_max);
  put(out, "schedules", schedules_text(policy.schedules));
  put(out, "hold_requests", fmt::format("{}", scaling.hold.requests_max));
  put(out, "hold_bytes", fmt::format("{}", scaling.hold.bytes_max));
  put_number(out, "hold_seconds", scaling.hold.time_max_s);
  put_text(out, "hold_keepalive", scaling.hold.sends_blanks ? "whitespace" : "events");
  if (scaling.hold.keep_alive_s < scaling.hold.time_max_s) {
    put_number(out, "hold_keepalive_seconds", scaling.hold.keep_alive_s);
  }
  if (!scaling.launch) return;
  out += "\n[pool.launch]\n";
  const LaunchConfig& launch = *scaling.launch;
  put_text(out, "kind", launch_kind_name(launch.kind));
  if (launch.kind == LaunchConfig::Kind::kKubernetes) {
    put_text(out, "workload",
             fmt::format("{}/{}/{}", launch.name_space, workload_kind_name(launch.workload),
                         launch.workload_name));
    put(out, "port", fmt::format("{}", launch.port));
  } else {
    put(out, "serve", list(launch.serve));
  }
  if (launch.kind == LaunchConfig::Kind::kSlurm) {
    put(out, "sbatch", list(launch.sbatch));
    put_number(out, "drain_seconds", launch.drain_s);
  }
  if (launch.kind == LaunchConfig::Kind::kSimulated) put_simulated(out, launch.simulated);
  put_number(out, "start_seconds", launch.start_s);
  put_number(out, "progress_seconds", launch.progress_s);
  put_number(out, "stop_grace", launch.stop_grace_s);
  const bool may_roll =
      launch.kind == LaunchConfig::Kind::kLocal || launch.kind == LaunchConfig::Kind::kSimulated;
  if (may_roll) put(out, "roll", launch.rolls ? "true" : "false");
}

void put_pool(std::string& out, const PoolConfig& pool) {
  out += "\n[[pool]]\n";
  put_text(out, "name", pool.name);
  put(out, "model", list(pool.models));
  if (!pool.fingerprints.empty()) put(out, "fingerprint", list(pool.fingerprints));
  put_text(out, "kind", worker_kind_name(pool.kind));
  if (pool.is_foreign()) {
    put(out, "continue", pool.continues ? "true" : "false");
    put(out, "tls", pool.tls ? "true" : "false");
    put_text(out, "ca_file", pool.ca_file);
    put_text(out, "api_key_file", pool.api_key_file);
    if (pool.kv_events_port != 0) put(out, "kv_events_port", std::to_string(pool.kv_events_port));
    if (pool.kv_replay_port != 0) put(out, "kv_replay_port", std::to_string(pool.kv_replay_port));
  }
  put_text(out, "tokenizer", pool.tokenizer);
  const bool may_split = !pool.is_foreign() || answers_in_pairs(pool.kind);
  if (may_split) {
    put_text(out, "split", split_mode_name(pool.split.mode));
    if (pool.split.mode != SplitConfig::Mode::kOff && !pool.is_foreign()) {
      put_text(out, "handoff", handoff_name(pool.split.handoff));
    }
  }
  put_text(out, "region", pool.region);
  if (pool.dns_port > 0) {
    put_text(out, "dns", net::format_host_port(pool.dns_host, pool.dns_port));
  }
  put_text(out, "dns_srv", pool.dns_service);
  if (!pool.kubernetes_service.empty()) {
    put_text(out, "kubernetes",
             fmt::format("{}/{}:{}", pool.kubernetes_namespace, pool.kubernetes_service,
                         pool.kubernetes_port));
  }
  out += media_text(pool.media, pool.scaling.has_value());
  if (pool.scaling) put_scaling(out, *pool.scaling);
}

void put_route(std::string& out, const RouteConfig& route) {
  out += "\n[[route]]\n";
  put_text(out, "model", route.model);
  put_text(out, "tenant", route.tenant);
  put_text(out, "sticky", sticky_name(route.sticky));
  std::string arms;
  for (const RouteArm& arm : route.arms) {
    const std::string weight =
        route.is_rolled_out(arm) ? "" : fmt::format(", weight = {}", arm.weight);
    arms += fmt::format("{}{{pool = {}, arm = {}{}}}", arms.empty() ? "" : ", ", quoted(arm.pool),
                        quoted(arm.name), weight);
  }
  put(out, "to", "[" + arms + "]");
  if (!route.fallback.empty()) put(out, "fallback", list(route.fallback));
  if (route.shadow) {
    put(out, "shadow",
        fmt::format("{{pool = {}, share = {}, budget_tokens_per_minute = {}}}",
                    quoted(route.shadow->pool), route.shadow->share,
                    route.shadow->tokens_per_minute));
  }
  if (route.rollout) out += rollout_text(*route.rollout);
}

void put_autoscaler(std::string& out, const AutoscalerConfig& autoscaler) {
  out += "\n[autoscaler]\n";
  put_text(out, "state_dir", autoscaler.state_dir);
  put(out, "gateways", list(autoscaler.gateways));
  if (autoscaler.gpus_max) put(out, "max_gpus", fmt::format("{}", *autoscaler.gpus_max));
  if (autoscaler.lead == AutoscalerConfig::Lead::kEtcd) put_text(out, "lead", "etcd");
  if (autoscaler.lead == AutoscalerConfig::Lead::kKubernetes) {
    put_text(out, "lead", "kubernetes");
    put_text(out, "lease", autoscaler.lease_namespace + "/" + autoscaler.lease_name);
  }
  if (autoscaler.lead != AutoscalerConfig::Lead::kNone) {
    put(out, "lease_seconds", fmt::format("{}", autoscaler.lease_s));
  }
  if (autoscaler.port >= 0) {
    put_text(out, "listen", net::format_host_port(autoscaler.host, autoscaler.port));
  }
  if (autoscaler.keda_port >= 0) {
    put_text(out, "keda_listen", net::format_host_port(autoscaler.keda_host, autoscaler.keda_port));
  }
}

void put_etcd(std::string& out, const EtcdConfig& etcd) {
  if (etcd.endpoints.empty()) return;
  out += "\n[etcd]\n";
  put(out, "endpoints", list(etcd.endpoints));
  put_text(out, "prefix", etcd.prefix);
  put_text(out, "user", etcd.user);
  put_text(out, "password_file", etcd.password_file);
  put(out, "tls", etcd.tls ? "true" : "false");
  put_text(out, "ca_file", etcd.ca_file);
  put_text(out, "certificate_file", etcd.certificate_file);
  put_text(out, "key_file", etcd.key_file);
}

void put_regions(std::string& out, const RegionsConfig& regions) {
  for (const RegionConfig& region : regions.others) {
    out += "\n[[region]]\n";
    put_text(out, "name", region.name);
    put_text(
        out, "gateway",
        (region.tls ? "https://" : "http://") + net::format_host_port(region.host, region.port));
    put_text(out, "key_file", region.key_file);
    put_text(out, "ca_file", region.ca_file);
    put(out, "egress_per_gb", fmt::format("{}", region.egress_per_gb));
    if (region.egress_s_per_mb > 0) {
      put(out, "egress_s_per_mb", fmt::format("{}", region.egress_s_per_mb));
    }
  }
}

}  // namespace

std::string scaling_text(const ScalingConfig& scaling) {
  std::string out;
  put_scaling(out, scaling);
  return out;
}

std::string config_text(const GatewayConfig& config) {
  std::string out = "[gateway]\n";
  put_text(out, "listen", net::format_host_port(config.host, config.port));
  if (config.admin_port >= 0) {
    put_text(out, "admin", net::format_host_port(config.admin_host, config.admin_port));
  }
  if (config.grpc_port >= 0) {
    put_text(out, "grpc_listen", net::format_host_port(config.grpc_host, config.grpc_port));
  }
  put(out, "allowed_hosts", list(config.allowed_hosts));
  put(out, "http2", config.http2 ? "true" : "false");
  put(out, "threads", fmt::format("{}", config.threads));
  put_text(out, "keys_file", config.keys_file);
  put_text(out, "workers_file", config.workers_file);
  put_text(out, "rollouts_file", config.rollouts_file);
  put_text(out, "fleet_key_file", config.fleet_key_file);
  put(out, "retries", fmt::format("{}", config.retries_max));
  put(out, "retry_budget", fmt::format("{}", config.retry_budget));
  put(out, "resume_budget", fmt::format("{}", config.resume_budget_s));
  put(out, "drain_seconds", fmt::format("{}", config.drain_s));
  put(out, "index_bytes", fmt::format("{}", config.index_bytes));
  put(out, "allowed_cidrs", list(config.allowed_cidr_texts));
  put_text(out, "zone", config.zones.own);
  put_text(out, "region", config.regions.own);
  put_text(out, "region_secret_file", config.regions.secret_file);
  if (config.dns_server.port != 0) {
    put_text(out, "dns_server",
             net::format_host_port(config.dns_server.host, config.dns_server.port));
  }
  if (!config.zones.distance_ms.empty()) out += "\n[zones]\n";
  for (const auto& [zone, ms] : config.zones.distance_ms) put_number(out, quoted(zone), ms);
  put_autoscaler(out, config.autoscaler);
  put_etcd(out, config.etcd);
  out += "\n[kubernetes]\n";
  put(out, "api", quoted(config.kubernetes.api));
  put(out, "token_file", quoted(config.kubernetes.token_file));
  put(out, "ca_file", quoted(config.kubernetes.ca_file));
  put_regions(out, config.regions);
  for (const PoolConfig& pool : config.pools) put_pool(out, pool);
  for (const RouteConfig& route : config.routes) put_route(out, route);
  for (const TenantConfig& tenant : config.tenants) {
    out += "\n[[tenant]]\n";
    put_text(out, "name", tenant.name);
    put(out, "models", list(tenant.models));
    put_text(out, "pool", tenant.pool);
    put_text(out, "region", tenant.region);
    if (tenant.weight > 0) put(out, "weight", fmt::format("{}", tenant.weight));
  }
  for (const WorkerConfig& worker : config.workers) {
    out += "\n[[worker]]\n";
    put_text(out, "pool", worker.pool);
    put_text(
        out, "url",
        (worker.tls ? "https://" : "http://") + net::format_host_port(worker.host, worker.port));
    put_text(out, "zone", worker.zone);
    const auto pool = std::ranges::find(config.pools, worker.pool, &PoolConfig::name);
    const bool is_paired = pool != config.pools.end() && pool->is_foreign() &&
                           pool->split.mode != SplitConfig::Mode::kOff;
    if (!is_paired) continue;
    put_text(out, "role", cluster::worker_role_name(worker.role));
    if (pool->kind == WorkerKind::kSglang) {
      put(out, "bootstrap_port", std::to_string(worker.bootstrap_port));
    }
  }
  return out;
}

}  // namespace pelton::gateway
