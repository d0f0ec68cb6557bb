#include "gateway/config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "cli/toml_tree.h"
#include "gateway/config_table.h"
#include "gateway/rollout_config.h"
#include "gateway/scaling_config.h"
#include "net/allowed_hosts.h"
#include "net/ip_address.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

using cli::TomlNode;
using Table = ConfigTable;

constexpr size_t kWorkersMax = 4095;
constexpr double kIndexBytesMin = 1 << 20;
constexpr double kIndexBytesMax = 1e12;
constexpr size_t kModelNameMax = 512;
constexpr double kZoneMsMax = 60'000;
// Of another zone of which nothing is said: more than another machine of one's own.
constexpr double kZoneMsOtherwise = 1;

constexpr std::array<WorkerKind, 5> kKinds = {WorkerKind::kPelton, WorkerKind::kOpenAi,
                                              WorkerKind::kVllm, WorkerKind::kSglang,
                                              WorkerKind::kLlamaCpp};

constexpr std::array<std::pair<RouteConfig::Sticky, std::string_view>, 4> kSticky = {
    {{RouteConfig::Sticky::kNone, "none"},
     {RouteConfig::Sticky::kSession, "session"},
     {RouteConfig::Sticky::kTenant, "tenant"},
     {RouteConfig::Sticky::kUser, "user"}}};

constexpr double kShadowTokensMax = 1e12;

Result<void> read_shadow(const Table& table, ShadowConfig& shadow) {
  TRY(table.expect_only({"pool", "share", "budget_tokens_per_minute"}));
  TRY(table.read_name("pool", shadow.pool));
  TRY(table.read("share", {0, 1}, shadow.share));
  if (!(shadow.share > 0)) {
    return table.bad("share",
                     "is missing, or 0: how many of the conversations are copied, as 0.01");
  }
  return table.read("budget_tokens_per_minute", {1, kShadowTokensMax}, shadow.tokens_per_minute);
}

Result<void> read_arm(const Table& table, RouteConfig& route) {
  TRY(table.expect_only({"pool", "arm", "weight"}));
  RouteArm arm;
  TRY(table.read_name("pool", arm.pool));
  TRY(table.read("arm", arm.name));
  if (arm.name.empty()) arm.name = arm.pool;
  TRY(table.read("weight", {0, 1e6}, arm.weight));
  arm.has_weight = table.has("weight");
  if (std::ranges::find(route.arms, arm.name, &RouteArm::name) != route.arms.end()) {
    return table.bad("arm", fmt::format("'{}' is another arm's too", arm.name));
  }
  route.arms.push_back(std::move(arm));
  return {};
}

// Beyond this machine.
bool is_exposed(const std::string& host) {
  return net::is_ip_address(host) && !net::is_loopback(host);
}

bool is_ipv4(const std::string& host) {
  return net::is_ip_address(host) && host.find(':') == std::string::npos;
}

bool is_any_address(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

struct Listener {
  std::string_view key;
  const std::string& host;
  int port = -1;  // below 0: there is none
};

bool are_one(const Listener& one, const Listener& other) {
  return one.port > 0 && one.port == other.port &&
         (one.host == other.host || is_any_address(one.host) || is_any_address(other.host));
}

// What could not be listened at.
Result<void> check_addresses(const Table& table, const GatewayConfig& config) {
  const Listener all[] = {{"listen", config.host, config.port},
                          {"admin", config.admin_host, config.admin_port},
                          {"grpc_listen", config.grpc_host, config.grpc_port}};
  for (const Listener& one : all) {
    if (one.port >= 0 && !net::is_ip_address(one.host)) {
      return table.bad(one.key, fmt::format("'{}' is not an IPv4 or IPv6 address", one.host));
    }
    for (const Listener& before : all) {
      if (&before == &one) break;
      if (!are_one(before, one)) continue;
      return table.bad(one.key,
                       fmt::format("is where '{}' is, too: they are two listeners", before.key));
    }
  }
  return {};
}

Result<void> check_listeners(const Table& table, const GatewayConfig& config,
                             const ConfigRules& rules) {
  TRY(check_addresses(table, config));
  if (rules.open) return {};
  if (is_exposed(config.host) && config.keys_file.empty()) {
    return table.bad("listen",
                     fmt::format("{} lets anyone who reaches this machine use the models, and "
                                 "nobody is asked for a key: give 'keys_file', or --open if that "
                                 "is meant",
                                 config.host));
  }
  if (config.grpc_port >= 0 && is_exposed(config.grpc_host) && config.keys_file.empty()) {
    return table.bad("grpc_listen",
                     fmt::format("{} lets anyone who reaches this machine use the models, and "
                                 "nobody is asked for a key: give 'keys_file', or --open if that "
                                 "is meant",
                                 config.grpc_host));
  }
  if (config.admin_port < 0 || !is_exposed(config.admin_host)) return {};
  return table.bad("admin", fmt::format("{} lets anyone who reaches this machine command the "
                                        "fleet, as it asks for no key: give an address of the "
                                        "loopback interface, or --open if that is meant",
                                        config.admin_host));
}

Result<void> read_networks(const Table& table, GatewayConfig& config) {
  std::vector<std::string> texts;
  TRY(table.read("allowed_cidrs", texts));
  for (const std::string& text : texts) {
    Result<net::IpNetwork> network = net::IpNetwork::parse(text);
    if (!network.ok()) return table.bad("allowed_cidrs", network.error().message);
    config.allowed_cidrs.push_back(*network);
  }
  config.allowed_cidr_texts = std::move(texts);
  return {};
}

Result<void> read_etcd(const Table& table, EtcdConfig& etcd) {
  TRY(table.expect_only({"endpoints", "prefix", "user", "password_file", "tls", "ca_file",
                         "certificate_file", "key_file"}));
  TRY(table.read("endpoints", etcd.endpoints));
  if (etcd.endpoints.empty()) return table.bad("endpoints", "is missing: HOST:PORT of etcd");
  for (const std::string& endpoint : etcd.endpoints) {
    const Result<net::HostPort> parsed = net::parse_host_port(endpoint);
    if (!parsed.ok() || parsed->port == 0) return table.bad("endpoints", "must be HOST:PORT");
  }
  TRY(table.read("prefix", etcd.prefix));
  TRY(table.read("user", etcd.user));
  TRY(table.read("password_file", etcd.password_file));
  if (etcd.user.empty() != etcd.password_file.empty()) {
    return table.bad("user", "and 'password_file' go together");
  }
  TRY(table.read("tls", etcd.tls));
  TRY(table.read("ca_file", etcd.ca_file));
  TRY(table.read("certificate_file", etcd.certificate_file));
  TRY(table.read("key_file", etcd.key_file));
  if (etcd.certificate_file.empty() != etcd.key_file.empty()) {
    return table.bad("certificate_file", "and 'key_file' go together");
  }
  if (!etcd.tls && !(etcd.ca_file.empty() && etcd.key_file.empty())) {
    return table.bad("tls", "is not true: certificates mean nothing without");
  }
  if (etcd.prefix.starts_with('/') && !etcd.prefix.ends_with('/')) return {};
  return table.bad("prefix", "must begin with '/' and not end with it, as in /pelton/v1/main");
}

Result<void> read_zones(const Table& table, ZoneConfig& zones) {
  TRY(table.read_all({0, kZoneMsMax}, zones.distance_ms));
  if (!zones.own.empty() && zones.distance_ms.contains(zones.own)) {
    return table.bad(zones.own, "is the gateway's own zone, to which it is no way");
  }
  if (!zones.own.empty() || zones.distance_ms.empty()) return {};
  return table.bad(zones.distance_ms.begin()->first,
                   "means nothing without 'zone' of [gateway], from where it is measured");
}

Result<void> read_kubernetes(const Table& table, KubernetesConfig& kubernetes) {
  TRY(table.expect_only({"api", "token_file", "ca_file"}));
  TRY(table.read("api", kubernetes.api));
  TRY(table.read("token_file", kubernetes.token_file));
  TRY(table.read("ca_file", kubernetes.ca_file));
  const Result<net::HttpUrl> url = net::parse_http_url(kubernetes.api);
  if (url.ok() && url->target == "/" && !kubernetes.api.ends_with('/')) return {};
  return table.bad("api", "must be the API server's URL without a path, as in https://10.0.0.1");
}

// "NAMESPACE/SERVICE:PORT".
Result<void> read_service(const Table& table, PoolConfig& pool) {
  std::string text;
  TRY(table.read("kubernetes", text));
  if (text.empty()) return {};
  const size_t slash = text.find('/');
  const size_t colon = text.rfind(':');
  const bool is_whole = slash != std::string::npos && colon != std::string::npos && slash > 0 &&
                        slash + 1 < colon && colon + 1 < text.size();
  if (!is_whole) {
    return table.bad("kubernetes",
                     "must be NAMESPACE/SERVICE:PORT, the port by its name or number");
  }
  pool.kubernetes_namespace = text.substr(0, slash);
  pool.kubernetes_service = text.substr(slash + 1, colon - slash - 1);
  pool.kubernetes_port = text.substr(colon + 1);
  return {};
}

Result<void> read_gateway(const Table& table, const ConfigRules& rules, GatewayConfig& config) {
  TRY(table.expect_only({"listen",        "admin",          "grpc_listen", "allowed_hosts",
                         "http2",         "threads",        "keys_file",   "workers_file",
                         "rollouts_file", "fleet_key_file", "retries",     "retry_budget",
                         "resume_budget", "drain_seconds",  "index_bytes", "allowed_cidrs",
                         "zone",          "dns_server",     "region",      "region_secret_file"}));
  TRY(read_own_region(table, config.regions));
  TRY(table.read_address("dns_server", config.dns_server.host, config.dns_server.port));
  const net::HostPort& names = config.dns_server;
  if (!names.host.empty() && (names.port == 0 || !is_ipv4(names.host))) {
    return table.bad("dns_server", "must be an IPv4 address and a port, as 127.0.0.1:8600");
  }
  TRY(table.read("zone", config.zones.own));
  TRY(table.read_address("listen", config.host, config.port));
  TRY(table.read_address("admin", config.admin_host, config.admin_port));
  TRY(table.read_address("grpc_listen", config.grpc_host, config.grpc_port));
  TRY(table.read("allowed_hosts", config.allowed_hosts));
  if (const auto hosts = net::AllowedHosts::parse(config.allowed_hosts); !hosts.ok()) {
    return table.bad("allowed_hosts", hosts.error().message);
  }
  TRY(table.read("http2", config.http2));
  TRY(read_networks(table, config));
  TRY(table.read("threads", {1, 64}, config.threads));
  TRY(table.read("keys_file", config.keys_file));
  TRY(table.read("workers_file", config.workers_file));
  TRY(table.read("rollouts_file", config.rollouts_file));
  TRY(table.read("fleet_key_file", config.fleet_key_file));
  TRY(table.read("retries", {0, 8}, config.retries_max));
  TRY(table.read("retry_budget", {0, 1}, config.retry_budget));
  TRY(table.read("resume_budget", {0, 600}, config.resume_budget_s));
  TRY(table.read("drain_seconds", {0, 3600}, config.drain_s));
  TRY(table.read("index_bytes", {kIndexBytesMin, kIndexBytesMax}, config.index_bytes));
  return check_listeners(table, config, rules);
}

bool is_routed(const GatewayConfig& config, const std::string& model) {
  return std::ranges::any_of(config.routes,
                             [&](const RouteConfig& route) { return route.model == model; });
}

// Before pools are known: which of them there are check_routes() says.
Result<void> read_route(const Table& table, GatewayConfig& config) {
  TRY(table.expect_only({"model", "tenant", "sticky", "to", "shadow", "fallback", "rollout"}));
  RouteConfig route;
  TRY(table.read_name("model", route.model));
  TRY(table.read("tenant", route.tenant));
  if (route.tenant != "*" && config.keys_file.empty()) {
    return table.bad("tenant", "means nothing without 'keys_file', which says whose a request is");
  }
  std::string sticky(sticky_name(route.sticky));
  TRY(table.read("sticky", sticky));
  const auto found = std::ranges::find(kSticky, sticky, [](const auto& one) { return one.second; });
  if (found == kSticky.end()) return table.bad("sticky", "must be none, session, tenant or user");
  route.sticky = found->first;
  for (const RouteConfig& before : config.routes) {
    if (before.model != route.model) continue;
    if (before.tenant != "*" && before.tenant != route.tenant) continue;
    return table.bad(
        "model", fmt::format("'{}' has a route above that takes all of its requests", route.model));
  }
  TRY(table.read_tables("to", [&](const Table& arm) { return read_arm(arm, route); }));
  TRY(table.read_table(
      "shadow", [&](const Table& shadow) { return read_shadow(shadow, route.shadow.emplace()); }));
  TRY(table.read("fallback", route.fallback));
  double sum = 0;
  for (const RouteArm& arm : route.arms) sum += arm.weight;
  if (route.arms.empty()) return table.bad("to", "is missing: [{pool = \"NAME\", weight = 95}]");
  if (!(sum > 0)) return table.bad("to", "has no weight above 0: nobody would get a request");
  TRY(table.read_table("rollout",
                       [&](const Table& rollout) { return read_rollout(rollout, config, route); }));
  config.routes.push_back(std::move(route));
  return {};
}

// The routes once more, now that the pools are known.
Result<void> check_route(const Table& table, GatewayConfig& config) {
  RouteConfig route;
  TRY(table.read("model", route.model));
  TRY(table.read_tables("to", [&](const Table& arm) { return read_arm(arm, route); }));
  TRY(table.read_table(
      "shadow", [&](const Table& shadow) { return read_shadow(shadow, route.shadow.emplace()); }));
  TRY(table.read("fallback", route.fallback));
  const auto check_pool = [&](std::string_view key, const std::string& name) -> Result<void> {
    const auto pool = std::ranges::find(config.pools, name, &PoolConfig::name);
    if (pool == config.pools.end()) {
      return table.bad(key, fmt::format("names no [[pool]]: '{}'", name));
    }
    if (std::ranges::find(pool->models, route.model) == pool->models.end()) {
      return table.bad(
          key, fmt::format("names the pool '{}', which has no model '{}'", name, route.model));
    }
    if (key == "shadow" && pool->scaling) {
      return table.bad(key, fmt::format("names the pool '{}', whose replicas come and go: copies "
                                        "of requests would start some",
                                        name));
    }
    if (pool->scaling && !route.fallback.empty()) {
      return table.bad("fallback",
                       fmt::format("is not for the pool '{}', whose replicas come and go: requests "
                                   "are held for it instead",
                                   name));
    }
    return {};
  };
  for (const RouteArm& arm : route.arms) TRY(check_pool("to", arm.pool));
  for (const std::string& pool : route.fallback) {
    TRY(check_pool("fallback", pool));
    if (std::ranges::count(route.fallback, pool) == 1) continue;
    return table.bad("fallback", fmt::format("has '{}' twice", pool));
  }
  if (!route.shadow) return {};
  TRY(check_pool("shadow", route.shadow->pool));
  if (std::ranges::find(route.arms, route.shadow->pool, &RouteArm::pool) != route.arms.end()) {
    return table.bad("shadow", fmt::format("names the pool '{}', which is one of its arms: it "
                                           "would get some requests twice",
                                           route.shadow->pool));
  }
  return {};
}

Result<void> read_tenant(const Table& table, GatewayConfig& config) {
  TRY(table.expect_only({"name", "models", "pool", "region", "weight"}));
  TenantConfig tenant;
  TRY(table.read_name("name", tenant.name));
  TRY(table.read("models", tenant.models));
  TRY(table.read("pool", tenant.pool));
  const bool is_pool =
      tenant.pool.empty() || std::ranges::any_of(config.pools, [&](const PoolConfig& pool) {
        return pool.name == tenant.pool;
      });
  if (!is_pool) return table.bad("pool", fmt::format("names no [[pool]]: '{}'", tenant.pool));
  TRY(table.read("region", tenant.region));
  TRY(table.read("weight", {0.001, 1000}, tenant.weight));
  if (tenant.region == PoolConfig::kRegionOfWorker) {
    return table.bad("region", "is one region's name; without it any may answer");
  }
  const bool is_region =
      tenant.region.empty() || config.regions.has(tenant.region) ||
      std::ranges::any_of(config.pools, [&](const PoolConfig& pool) {
        return pool.region == tenant.region || pool.region == PoolConfig::kRegionOfWorker;
      });
  if (!is_region) {
    return table.bad("region",
                     fmt::format("is no [[pool]]'s and no [[region]]: '{}'", tenant.region));
  }
  const auto its = std::ranges::find(config.pools, tenant.pool, &PoolConfig::name);
  if (!tenant.region.empty() && !config.regions.has(tenant.region) && its != config.pools.end() &&
      its->region != tenant.region && its->region != PoolConfig::kRegionOfWorker) {
    return table.bad("region", fmt::format("is not that of its pool '{}'", tenant.pool));
  }
  if (config.keys_file.empty()) {
    return table.bad("name", "means nothing without 'keys_file', which says whose a request is");
  }
  if (std::ranges::find(config.tenants, tenant.name, &TenantConfig::name) != config.tenants.end()) {
    return table.bad("name", "is another tenant's too");
  }
  config.tenants.push_back(std::move(tenant));
  return {};
}

Result<void> read_kind(const Table& table, PoolConfig& pool) {
  std::string kind = "pelton";
  TRY(table.read("kind", kind));
  const auto found = std::ranges::find(kKinds, kind, worker_kind_name);
  if (found == kKinds.end()) {
    return table.bad("kind", "must be pelton, openai, vllm, sglang or llamacpp");
  }
  pool.kind = *found;
  TRY(table.read("tls", pool.tls));
  TRY(table.read("ca_file", pool.ca_file));
  TRY(table.read("api_key_file", pool.api_key_file));
  TRY(table.read("continue", pool.continues));
  TRY(table.read("kv_events_port", {1, 65535}, pool.kv_events_port));
  TRY(table.read("kv_replay_port", {1, 65535}, pool.kv_replay_port));
  const bool publishes = pool.kind == WorkerKind::kVllm || pool.kind == WorkerKind::kSglang;
  if (pool.kv_events_port != 0 && !publishes) {
    return table.bad("kv_events_port", "is for workers of the kinds vllm and sglang");
  }
  if (pool.kv_replay_port != 0 && pool.kv_events_port == 0) {
    return table.bad("kv_replay_port", "means nothing without 'kv_events_port'");
  }
  if (pool.kv_replay_port != 0 && pool.kv_replay_port == pool.kv_events_port) {
    return table.bad("kv_replay_port", "is 'kv_events_port' too: they are two sockets");
  }
  if (pool.is_foreign()) return {};
  if (pool.tls || !pool.ca_file.empty()) {
    return table.bad(pool.tls ? "tls" : "ca_file",
                     "is for workers of other kinds: to pelton's there is TLS by "
                     "'fleet_key_file'");
  }
  if (!pool.api_key_file.empty()) {
    return table.bad("api_key_file",
                     "is for workers of other kinds: pelton's have the fleet's key");
  }
  if (!pool.continues) return table.bad("continue", "is for workers of other kinds");
  return {};
}

// As RFC 2782 has it: _SERVICE._PROTOCOL.NAME, but some have names without.
Result<void> read_dns_service(const Table& table, std::string& service) {
  constexpr size_t kDnsNameMax = 253;
  TRY(table.read("dns_srv", service));
  const bool is_plain =
      std::ranges::all_of(service, [](char c) { return c > ' ' && c <= '~' && c != ':'; });
  if (service.size() <= kDnsNameMax && is_plain) return {};
  return table.bad("dns_srv",
                   "must be a service's name, as _fleet._tcp.workers.local: its records "
                   "say the ports");
}

Result<void> read_fingerprints(const Table& table, PoolConfig& pool) {
  TRY(table.read("fingerprint", pool.fingerprints));
  if (pool.fingerprints.empty()) return {};
  if (pool.is_foreign())
    return table.bad("fingerprint", "is for workers of our own: others say none");
  if (pool.fingerprints.size() != pool.models.size()) {
    return table.bad("fingerprint", "must be as many as 'model' has names, in their order");
  }
  for (const std::string& one : pool.fingerprints) {
    const bool is_one =
        one.size() == 32 && one.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_one)
      return table.bad("fingerprint", "is 32 hexadecimal digits, as /server_info has it");
  }
  return {};
}

// Two that write one workload's number would write over each other.
Result<void> check_workload(const Table& table, const GatewayConfig& config,
                            const PoolConfig& pool) {
  const auto workload = [](const PoolConfig& one) {
    const bool has_one = one.scaling && one.scaling->launch &&
                         one.scaling->launch->kind == LaunchConfig::Kind::kKubernetes;
    if (!has_one) return std::string();
    const LaunchConfig& launch = *one.scaling->launch;
    return fmt::format("{}/{}/{}", launch.name_space, workload_kind_name(launch.workload),
                       launch.workload_name);
  };
  const std::string own = workload(pool);
  for (const PoolConfig& other : config.pools) {
    if (own.empty() || workload(other) != own) continue;
    return table.bad("launch",
                     fmt::format("has the workload {}, which is '{}''s too", own, other.name));
  }
  return {};
}

// What one role needs is a matter of first tokens, and what the other one does of gaps. Pods of one
// workload are all alike, so none has a role.
bool scales_by_both(const PoolConfig& pool) {
  if (!pool.scaling) return false;
  const autoscaler::PoolPolicy& policy = pool.scaling->policy;
  const bool has_both = policy.rule == autoscaler::PoolPolicy::Rule::kSlo &&
                        policy.slo.first_token_s && policy.slo.gap_s && policy.standby == 0;
  return has_both &&
         !(pool.scaling->launch && pool.scaling->launch->kind == LaunchConfig::Kind::kKubernetes);
}

// Replicas of a pool whose requests are split have two roles.
Result<void> read_roles(const Table& table, PoolConfig& pool) {
  if (!pool.scaling) return {};
  ScalingConfig& scaling = *pool.scaling;
  if (pool.split.mode == SplitConfig::Mode::kOff) {
    if (!scaling.prefill_min && !scaling.prefill_max) return {};
    return table.bad("split",
                     "is missing: 'prefill_min' and 'prefill_max' of [pool.scale] are of a pool "
                     "whose requests are split");
  }
  if (const std::string_view key = scaling.unheeded_by_roles(); !key.empty()) {
    return table.bad("scale",
                     fmt::format("'{}' says nothing of a pool with 'split', whose replicas "
                                 "of two roles are scaled by the objective alone",
                                 key));
  }
  scaling.scale_by_roles();
  const Result<void> sound = scaling.policy.check();
  if (sound.ok()) return {};
  return table.bad("scale", "does not fit: " + sound.error().message);
}

// Whether the one's name is what the other one's replicas for prompts are launched as.
bool is_prefill_of(const PoolConfig& one, const PoolConfig& other) {
  return other.scaling && other.split.mode != SplitConfig::Mode::kOff &&
         one.name == other.name + ":prefill";
}

Result<void> read_pool(const Table& table, GatewayConfig& config) {
  TRY(table.expect_only({"name",           "model",       "kind",   "tokenizer", "dns",
                         "kubernetes",     "scale",       "launch", "tls",       "ca_file",
                         "api_key_file",   "continue",    "region", "dns_srv",   "kv_events_port",
                         "kv_replay_port", "fingerprint", "split",  "handoff",   "media"}));
  PoolConfig pool;
  TRY(table.read_name("name", pool.name));
  TRY(table.read("model", pool.models));
  TRY(read_kind(table, pool));
  TRY(table.read("tokenizer", pool.tokenizer));
  if (pool.kv_events_port != 0 && pool.tokenizer.empty()) {
    return table.bad("kv_events_port",
                     "means nothing without 'tokenizer', by which prompts' blocks are known");
  }
  pool.region = config.regions.own;
  TRY(table.read("region", pool.region));
  TRY(table.read_address("dns", pool.dns_host, pool.dns_port));
  if (pool.dns_port == 0) return table.bad("dns", "has the port 0");
  TRY(read_dns_service(table, pool.dns_service));
  TRY(read_service(table, pool));
  TRY(read_media(table, pool.is_foreign(), pool.media));
  TRY(read_scaling(table, pool.is_foreign(), pool.scaling));
  TRY(check_workload(table, config, pool));
  TRY(read_split(table,
                 {.is_foreign = pool.is_foreign(),
                  .pairs = answers_in_pairs(pool.kind),
                  .has_tokenizer = !pool.tokenizer.empty(),
                  .has_key = !config.fleet_key_file.empty(),
                  .scales = pool.scaling.has_value(),
                  .scales_by_both = scales_by_both(pool)},
                 pool.split));
  TRY(read_roles(table, pool));
  if (pool.models.empty()) return table.bad("model", "is missing: requests find the pool by it");
  for (const std::string& model : pool.models) {
    if (model.empty() || model.size() > kModelNameMax) {
      return table.bad("model", fmt::format("must be names of 1 to {} bytes", kModelNameMax));
    }
    if (std::ranges::count(pool.models, model) > 1) {
      return table.bad("model", fmt::format("has '{}' twice", model));
    }
  }
  TRY(read_fingerprints(table, pool));
  for (const PoolConfig& other : config.pools) {
    if (other.name == pool.name) return table.bad("name", "is another pool's too");
    if (is_prefill_of(other, pool) || is_prefill_of(pool, other)) {
      return table.bad("name",
                       fmt::format("is confused with '{}': the replicas that compute prompts for a "
                                   "pool with 'split' are called NAME:prefill",
                                   other.name));
    }
    for (const std::string& model : pool.models) {
      if (std::ranges::find(other.models, model) == other.models.end()) continue;
      if (is_routed(config, model)) continue;
      return table.bad("model",
                       fmt::format("'{}' is the pool '{}''s too, and no [[route]] says which "
                                   "requests go where",
                                   model, other.name));
    }
  }
  config.pools.push_back(std::move(pool));
  return {};
}

Result<void> read_worker_url(const Table& table, const PoolConfig& pool, WorkerConfig& worker) {
  std::string text;
  TRY(table.read("url", text));
  const bool is_https = text.starts_with("https://");
  const std::string_view scheme = is_https ? "https://" : "http://";
  worker.tls = is_https || pool.tls;
  if (is_https && !pool.is_foreign()) {
    return table.bad("url",
                     "must begin with http://: to workers there is TLS by 'fleet_key_file', which "
                     "asks for no certificates");
  }
  const Result<net::HttpUrl> url = net::parse_http_url(text);
  if (!url.ok() || url->target != "/") {
    return table.bad("url", "must be http://HOST:PORT, the worker's --fleet-port");
  }
  const std::string_view authority = std::string_view(text).substr(scheme.size());
  if (!net::parse_host_port(authority.substr(0, authority.find('/'))).ok()) {
    return table.bad("url", "has no port: give the worker's --fleet-port");
  }
  if (url->port < 1) return table.bad("url", "has the port 0");
  worker.host = url->host;
  worker.port = url->port;
  return {};
}

// Pelton's say it themselves (serve --fleet-role).
Result<void> read_worker_role(const Table& table, const PoolConfig& pool, WorkerConfig& worker) {
  std::string role;
  TRY(table.read("role", role));
  int port = 0;
  TRY(table.read("bootstrap_port", {1, 65535}, port));
  const bool is_paired = pool.is_foreign() && pool.split.mode != SplitConfig::Mode::kOff;
  if (!is_paired && (!role.empty() || port != 0)) {
    return table.bad(role.empty() ? "bootstrap_port" : "role",
                     "is for workers of other kinds, in a pool with 'split'");
  }
  if (port != 0 && pool.kind != WorkerKind::kSglang) {
    return table.bad("bootstrap_port", "is for workers of the kind sglang");
  }
  if (port != 0) worker.bootstrap_port = port;
  if (role.empty()) return {};
  const std::optional<cluster::WorkerRole> known = cluster::worker_role_named(role);
  if (!known) return table.bad("role", "must be prefill, decode or both");
  worker.role = *known;
  return {};
}

Result<void> read_worker(const Table& table, GatewayConfig& config) {
  TRY(table.expect_only({"pool", "url", "zone", "role", "bootstrap_port"}));
  WorkerConfig worker;
  TRY(table.read_name("pool", worker.pool));
  TRY(table.read("zone", worker.zone));
  const auto pool = std::ranges::find(config.pools, worker.pool, &PoolConfig::name);
  if (pool == config.pools.end()) {
    return table.bad("pool", fmt::format("names no [[pool]]: '{}'", worker.pool));
  }
  TRY(read_worker_url(table, *pool, worker));
  TRY(read_worker_role(table, *pool, worker));
  if (!config.allowed_cidrs.empty() && !may_be_worker(worker.host, config.allowed_cidrs)) {
    return table.bad("url", fmt::format("{} lies outside 'allowed_cidrs', or is a name; names are "
                                        "for a pool's 'dns'",
                                        worker.host));
  }
  for (const WorkerConfig& other : config.workers) {
    if (other.host == worker.host && other.port == worker.port) {
      return table.bad("url", "is another worker's too");
    }
  }
  if (config.workers.size() == kWorkersMax) {
    return table.bad("url", fmt::format("is one too many: at most {} workers", kWorkersMax));
  }
  config.workers.push_back(std::move(worker));
  return {};
}

template <typename Read>
Result<void> read_table(const TomlNode& tree, std::string_view key, const std::string& file,
                        const Read& read) {
  const TomlNode* node = tree.find(key);
  if (node == nullptr) return {};
  if (node->kind != TomlNode::Kind::kTable) {
    return cli::bad_toml(file, node->line, fmt::format("'{}' is a table: [{}]", key, key));
  }
  return read(Table(*node, fmt::format("[{}]", key), file));
}

using ReadTable = Result<void> (*)(const Table& table, GatewayConfig& config);

Result<void> read_tables(const TomlNode& tree, std::string_view key, const std::string& file,
                         ReadTable read, GatewayConfig& config) {
  const TomlNode* list = tree.find(key);
  if (list == nullptr) return {};
  for (const TomlNode& item : list->items) {
    if (item.kind != TomlNode::Kind::kTable) break;
    TRY(read(Table(item, fmt::format("[[{}]]", key), file), config));
  }
  const bool is_list = list->kind == TomlNode::Kind::kList &&
                       std::ranges::all_of(list->items, [](const TomlNode& item) {
                         return item.kind == TomlNode::Kind::kTable;
                       });
  if (is_list) return {};
  return cli::bad_toml(file, list->line, fmt::format("'{}' is written [[{}]]", key, key));
}

}  // namespace

std::string_view sticky_name(RouteConfig::Sticky sticky) {
  return std::ranges::find(kSticky, sticky, [](const auto& one) { return one.first; })->second;
}

double ZoneConfig::distance_s(std::string_view zone) const {
  // Of whom it is not known nothing is held against: the others would starve it.
  if (own.empty() || zone.empty() || zone == own) return 0;
  const auto known = distance_ms.find(zone);
  return (known == distance_ms.end() ? kZoneMsOtherwise : known->second) / 1000;
}

bool may_be_worker(const std::string& address, const std::vector<net::IpNetwork>& allowed) {
  const auto lies_in = [&](const net::IpNetwork& network) { return network.contains(address); };
  if (!allowed.empty()) return std::ranges::any_of(allowed, lies_in);
  // RFC 1918 and 4193.
  constexpr std::array<std::string_view, 4> kPrivate = {"10.0.0.0/8", "172.16.0.0/12",
                                                        "192.168.0.0/16", "fc00::/7"};
  return std::ranges::any_of(kPrivate, [&](std::string_view network) {
    return net::IpNetwork::parse(network)->contains(address);
  });
}

Result<GatewayConfig> parse_gateway_config(std::string_view text, const std::string& file,
                                           const ConfigRules& rules) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  GatewayConfig config;
  TRY(Table(tree, "the file", file)
          .expect_only({"gateway", "autoscaler", "etcd", "kubernetes", "pool", "region", "route",
                        "tenant", "worker", "zones"}));
  TRY(read_table(tree, "gateway", file,
                 [&](const Table& table) { return read_gateway(table, rules, config); }));
  TRY(read_table(tree, "zones", file,
                 [&](const Table& table) { return read_zones(table, config.zones); }));
  TRY(read_table(tree, "autoscaler", file,
                 [&](const Table& table) { return read_autoscaler(table, config.autoscaler); }));
  TRY(read_table(tree, "etcd", file,
                 [&](const Table& table) { return read_etcd(table, config.etcd); }));
  TRY(read_table(tree, "kubernetes", file,
                 [&](const Table& table) { return read_kubernetes(table, config.kubernetes); }));
  TRY(read_tables(
      tree, "region", file,
      [](const Table& table, GatewayConfig& into) { return read_region(table, into.regions); },
      config));
  TRY(read_tables(tree, "route", file, read_route, config));
  TRY(read_tables(tree, "pool", file, read_pool, config));
  TRY(read_tables(tree, "route", file, check_route, config));
  TRY(read_tables(tree, "tenant", file, read_tenant, config));
  TRY(read_tables(tree, "worker", file, read_worker, config));
  const bool finds_some = !config.workers_file.empty() || !config.etcd.endpoints.empty() ||
                          std::ranges::any_of(config.pools, [](const PoolConfig& pool) {
                            return pool.dns_port > 0 || !pool.dns_service.empty() ||
                                   !pool.kubernetes_service.empty() || pool.scaling.has_value();
                          });
  if (config.workers.empty() && !finds_some && !rules.allows_empty) {
    return cli::bad_toml(file, 1, "there is no [[worker]]; --allow-empty starts without");
  }
  return config;
}

Result<void> add_workers(std::string_view text, const std::string& file, GatewayConfig& config) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  TRY(Table(tree, "the file", file).expect_only({"worker"}));
  GatewayConfig found{.allowed_cidrs = config.allowed_cidrs, .pools = config.pools};
  TRY(read_tables(tree, "worker", file, read_worker, found));
  for (WorkerConfig& worker : found.workers) {
    const bool is_known = std::ranges::any_of(config.workers, [&](const WorkerConfig& other) {
      return other.host == worker.host && other.port == worker.port;
    });
    if (is_known) continue;
    if (config.workers.size() == kWorkersMax) {
      return cli::bad_toml(file, 1, fmt::format("at most {} workers", kWorkersMax));
    }
    config.workers.push_back(std::move(worker));
  }
  return {};
}

Result<GatewayConfig> read_gateway_config(const std::string& file, const ConfigRules& rules) {
  const Result<std::string> text = base::read_file(file, size_t{1} << 20);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, {}};
  return complete_gateway_config(*text, file, rules);
}

Result<GatewayConfig> complete_gateway_config(std::string_view text, const std::string& file,
                                              const ConfigRules& rules) {
  TRY_ASSIGN(GatewayConfig config, parse_gateway_config(text, file, rules));
  if (config.workers_file.empty()) return config;
  const Result<std::string> more = base::read_file(config.workers_file, size_t{1} << 20);
  if (!more.ok()) return Error{ErrorCode::kBadConfig, more.error().message, {}};
  TRY(add_workers(*more, config.workers_file, config));
  if (config.workers.empty() && !rules.allows_empty) {
    return cli::bad_toml(config.workers_file, 1,
                         "there is no [[worker]]; --allow-empty goes on without");
  }
  return config;
}

}  // namespace pelton::gateway
