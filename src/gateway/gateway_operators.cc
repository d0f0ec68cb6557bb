// The part of gateway::Gateway that is its operators': numbers, whose key is an operator's,
// commands to workers, the configuration that is in force and a new one.
#include <utility>

#include <fmt/format.h>

#include "access/audited_exchange.h"
#include "base/json_writer.h"
#include "gateway/client_headers.h"
#include "gateway/config_text.h"
#include "gateway/gateway.h"
#include "gateway/key_scopes.h"
#include "telemetry/process_usage.h"

namespace pelton::gateway {

FleetSampler::Sums Gateway::sums() const {
  FleetSampler::Sums sums{.open = counters_.open,
                          .waiting = counters_.figures.waiting(),
                          .retries = counters_.figures.retries(),
                          .moves = counters_.figures.moves(),
                          .interrupted = counters_.interrupted,
                          .unserved = counters_.unserved,
                          .ended = counters_.figures.ended()};
  for (const auto& [pool, gate] : gates()) sums.held[pool] = gate->counts().held;
  return sums;
}

bool Gateway::has_operators() const {
  const Config settings = config();
  return settings->config.key_scopes != nullptr && settings->config.key_scopes->has_operators();
}

std::optional<access::Principal> Gateway::operator_of(std::string_view key) const {
  if (!has_operators()) return std::nullopt;  // where no key is asked for, anybody would be one
  std::optional<access::Principal> found =
      access_control_.identify({.authorization = {}, .api_key = key});
  if (!found || !found->is_admin) return std::nullopt;
  return found;
}

bool Gateway::is_operator(const std::string& account) const {
  const Config settings = config();
  if (settings->config.key_scopes == nullptr) return false;
  const KeyScope* scope = settings->config.key_scopes->of(account);
  return scope != nullptr && scope->is_operator;
}

// Whose, and where from: nothing of what was asked.
api::ApiError Gateway::noted(const net::HttpRequest& request, const Asker& asker,
                             api::ApiError refusal) {
  if (audit_ == nullptr) return refusal;
  std::string region(asker.region);
  if (region.empty()) region = request.headers.get(kRegionHeader);
  if (region.empty()) region = request.headers.get(kRegionStaysHeader);
  // Or each name that a client thinks of would be a line.
  if (region != asker.region && !config()->config.regions.has(region)) region = "an unknown region";
  audit_->note_often({.who = std::string(asker.tenant),
                      .from = access::address_of(request),
                      .what = "refuse by residency",
                      .target = std::move(region),
                      .result = fmt::format("{} {}", refusal.status, refusal.code)});
  return refusal;
}

bool Gateway::command(std::string_view worker, Fleet::Command command) {
  return fleet_.command(worker, command);
}

namespace {

void write_route(base::JsonWriter& w, const RouteConfig& route) {
  w.begin_object().key("model").string(route.model).key("tenant").string(route.tenant);
  w.key("sticky").string(sticky_name(route.sticky)).key("arms").begin_array();
  for (const RouteArm& arm : route.arms) {
    w.begin_object().key("arm").string(arm.name).key("pool").string(arm.pool);
    w.key("weight");
    // Its share is its roll-out's.
    if (route.is_rolled_out(arm)) {
      w.null();
    } else {
      w.number(arm.weight);
    }
    w.end_object();
  }
  w.end_array().key("rollout");
  if (route.rollout) {
    w.string(route.rollout->name);
  } else {
    w.null();
  }
  w.key("shadow");
  if (route.shadow) {
    w.begin_object().key("pool").string(route.shadow->pool);
    w.key("share").number(route.shadow->share).end_object();
  } else {
    w.null();
  }
  w.key("fallback").begin_array();
  for (const std::string& pool : route.fallback) w.string(pool);
  w.end_array().end_object();
}

}  // namespace

std::string Gateway::routes_body() const {
  const Config settings = config();
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("routes").begin_array();
  for (const RouteConfig& route : settings->config.routes) write_route(w, route);
  w.end_array().end_object();
  return body;
}

// `clean`: no request is open, held or waited for, and none is suspected of ending workers.
std::string Gateway::ledger_body() const {
  const FleetSampler::Sums sums = this->sums();
  int64_t held = 0;
  for (const auto& [pool, count] : sums.held) held += count;
  const size_t suspects = quarantine_.size();
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("clean").boolean(sums.open == 0 && held == 0 && suspects == 0);
  w.key("state").string(draining_ ? "draining" : "serving");
  w.key("requests").begin_object().key("open").integer(sums.open);
  w.key("waiting").integer(sums.waiting).key("held").integer(held);
  w.key("suspects").integer(static_cast<int64_t>(suspects)).end_object();
  w.key("workers").begin_array();
  for (const Fleet::Row& row : fleet_.rows()) {
    w.begin_object().key("name").string(row.name).key("pool").string(row.pool);
    w.key("state").string(worker_state_name(row.state));
    w.key("reports").boolean(reports_now(row.state));
    w.key("running").integer(row.load.running).key("waiting").integer(row.load.waiting);
    w.key("uncounted").integer(row.uncounted).key("slots").integer(row.record.slots);
    w.key("kv_used").number(row.load.kv_used).key("report_age_ms").integer(row.report_age_ms);
    w.end_object();
  }
  w.end_array().key("process");
  telemetry::write_process(w);
  w.end_object();
  return body;
}

FleetConditions::Counts Gateway::condition_counts() const {
  const FleetSampler::Sums sums = this->sums();
  FleetConditions::Counts counts{.interrupted = sums.interrupted, .unserved = sums.unserved};
  for (const GatewayFigures::Ended& pool : sums.ended) {
    for (const int64_t ended : pool.by_outcome) counts.requests += ended;
  }
  using State = cluster::WorkerState;
  for (const Fleet::Row& row : fleet_.rows()) {
    if (row.kind == WorkerKind::kRegion) continue;
    const bool is_able = row.state == State::kReady || row.state == State::kSuspect ||
                         row.state == State::kUnverified;
    counts.able += is_able ? 1 : 0;
    counts.down += row.state == State::kDown ? 1 : 0;
  }
  for (const auto& [pool, held] : sums.held) counts.pools.push_back({.name = pool, .held = held});
  return counts;
}

bool Gateway::has_routes() const {
  return !config()->config.routes.empty();
}

std::string Gateway::effective_config() const {
  return config_text(config()->config);
}

// What takes a new start stays as it is in force: gives back those keys of the file.
std::vector<std::string_view> Gateway::keep_what_is_fixed(const GatewayConfig& old,
                                                          GatewayConfig& config) const {
  std::vector<std::string_view> kept;
  const auto keep = [&kept](std::string_view key, auto& value, const auto& before) {
    if (value == before) return;
    if (kept.empty() || kept.back() != key) kept.push_back(key);
    value = before;
  };
  keep("listen", config.host, old.host);
  keep("listen", config.port, old.port);
  keep("admin", config.admin_host, old.admin_host);
  keep("admin", config.admin_port, old.admin_port);
  keep("grpc_listen", config.grpc_host, old.grpc_host);
  keep("grpc_listen", config.grpc_port, old.grpc_port);
  keep("index_bytes", config.index_bytes, old.index_bytes);
  keep("threads", config.threads, old.threads);
  keep("allowed_hosts", config.allowed_hosts, old.allowed_hosts);
  keep("http2", config.http2, old.http2);
  keep("fleet_key_file", config.fleet_key_file, old.fleet_key_file);
  keep("[etcd]", config.etcd, old.etcd);
  keep("ca_file", config.kubernetes.ca_file, old.kubernetes.ca_file);
  keep("state_dir", config.autoscaler.state_dir, old.autoscaler.state_dir);
  for (PoolConfig& pool : config.pools) {
    const std::shared_ptr<PoolGate> gate = gate_of(pool.name);
    const bool is_same = gate == nullptr ? !pool.scaling
                                         : pool.scaling && scaling_text(*pool.scaling) ==
                                                               scaling_text(gate->config());
    if (is_same) continue;
    kept.emplace_back("[pool.scale]");
    if (gate == nullptr) {
      pool.scaling.reset();
    } else {
      pool.scaling = gate->config();
    }
  }
  return kept;
}

std::vector<std::string_view> Gateway::reload(GatewayConfig config, access::ApiKeys keys,
                                              ModelTexts texts) {
  const Config settings = this->config();
  std::vector<std::string_view> kept = keep_what_is_fixed(settings->config, config);
  set_queues(config);
  auto changed = std::make_shared<const Settings>(
      Settings{.config = std::move(config), .texts = std::move(texts)});
  {
    std::lock_guard lock(mutex_);
    access_control_.replace_keys(std::move(keys));
    config_ = std::move(changed);
  }
  retry_budget_.set_share(this->config()->config.retry_budget);
  watch_services(this->config()->config);
  set_members();
  rollouts_.set(this->config()->config);
  dns_.set_pools(this->config()->config.pools, this->config()->config.dns_server);
  ++counters_.reloads;
  return kept;
}

}  // namespace pelton::gateway
