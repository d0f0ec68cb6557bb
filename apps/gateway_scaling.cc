#include "apps/gateway_scaling.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "apps/scaled_pools.h"
#include "launch/scaler_pages.h"
#include "net/json_response.h"

namespace pelton::apps {

void DemandSignal::notify() {
  {
    std::lock_guard lock(mutex_);
    has_demand_ = true;
  }
  changed_.notify_all();
}

void DemandSignal::stop() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
}

DemandSignal::Woken DemandSignal::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return has_demand_ || stops_; });
  if (stops_) return Woken::kToStop;
  return std::exchange(has_demand_, false) ? Woken::kByDemand : Woken::kByTime;
}

Result<void> GatewayScaling::check(const gateway::GatewayConfig& config) {
  const auto bad = [](std::string text) {
    return Error{ErrorCode::kBadConfig, std::move(text), "config"};
  };
  bool decides_some = false;
  const gateway::PoolConfig* without = nullptr;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!pool.scaling) continue;
    decides_some = decides_some || is_decided_on(pool);
    if (!pool.scaling->launch) {
      if (!pool.scaling->is_advised_only) without = &pool;
      continue;
    }
    const gateway::LaunchConfig& launch = *pool.scaling->launch;
    const bool is_far = launch.kind == gateway::LaunchConfig::Kind::kSlurm;
    if (!is_far || !config.fleet_key_file.empty()) continue;
    return bad(
        fmt::format("{}: [[pool]]: 'launch': batch jobs as replicas are reached over the "
                    "network and need 'fleet_key_file' of [gateway]; `pelton gateway "
                    "--new-key FILE` makes one",
                    launch.place));
  }
  if (decides_some) return check_gpus(config);
  if (without != nullptr) {
    return bad(
        fmt::format("{}: [[pool]]: pool '{}' has no [pool.launch]: nothing says how its "
                    "replicas are started; serve = [\"MODEL\"] there does, and mode = "
                    "\"advise\" starts none",
                    without->scaling->place, without->name));
  }
  return bad("no [[pool]] has [pool.scale] and [pool.launch]: there is nothing to scale");
}

Result<std::unique_ptr<GatewayScaling>> GatewayScaling::make(
    const gateway::GatewayConfig& config, const std::string& facts_file, gateway::Gateway& gateway,
    DemandSignal& signal, const base::Clock& clock, base::Log& log) {
  TRY_ASSIGN(std::unique_ptr<launch::LauncherSet> launcher, open_launcher(config, 0, clock, log));
  std::unique_ptr<launch::FactsRecorder> recorder;
  if (!facts_file.empty()) {
    TRY_ASSIGN(recorder,
               launch::FactsRecorder::open(facts_file, launch::FactsRecorder::kBytesMax, log));
  }
  std::unique_ptr<GatewayScaling> made(new GatewayScaling(
      scaled_pools(config), std::move(launcher), std::move(recorder), gateway, signal, clock, log));
  if (config.autoscaler.gpus_max) made->scaler_.share_gpus(*config.autoscaler.gpus_max);
  return made;
}

GatewayScaling::GatewayScaling(std::vector<launch::ScaledPool> pools,
                               std::unique_ptr<launch::LauncherSet> launcher,
                               std::unique_ptr<launch::FactsRecorder> recorder,
                               gateway::Gateway& gateway, DemandSignal& signal,
                               const base::Clock& clock, base::Log& log)
    : gateway_(gateway),
      signal_(signal),
      launcher_(std::move(launcher)),
      recorder_(std::move(recorder)),
      scaler_(std::move(pools), *launcher_, *this, clock, log, recorder_.get()) {}

void GatewayScaling::start() {
  thread_ = std::thread([this] { run(); });
}

GatewayScaling::~GatewayScaling() {
  signal_.stop();
  if (thread_.joinable()) thread_.join();
}

void GatewayScaling::stop(std::chrono::milliseconds grace) {
  signal_.stop();
  if (thread_.joinable()) thread_.join();
  launcher_->stop_local(grace);
}

void GatewayScaling::run() {
  std::chrono::milliseconds next(0);
  for (;;) {
    const DemandSignal::Woken woken = signal_.wait(next);
    if (woken == DemandSignal::Woken::kToStop) return;
    next = scaler_.turn(woken == DemandSignal::Woken::kByDemand);
  }
}

net::HttpResponse GatewayScaling::page() const {
  return net::json_response(launch::states_body(scaler_.states()));
}

void GatewayScaling::add_metrics(telemetry::PrometheusText& text) const {
  launch::add_metrics(scaler_.states(), text);
}

std::vector<autoscaler::GatewayReport> GatewayScaling::reports(const std::string& pool) {
  return gateway_.demand(pool);
}

std::vector<launch::ScaledFleet::Worker> GatewayScaling::workers(const std::string& pool) {
  return scaled_workers(gateway_, pool);
}

// This gateway began with this autoscaler: nobody served before.
void GatewayScaling::set_launched(const std::vector<Address>& addresses,
                                  const std::vector<std::string>& /*unknown*/) {
  gateway_.set_launched(launched_workers(addresses));
}

void GatewayScaling::set_draining(const Address& address, bool draining) {
  gateway_.set_draining(address.host, address.port, draining);
}

void GatewayScaling::release_memory(const Address& address) {
  gateway_.release_memory(address.host, address.port);
}

void GatewayScaling::retire(const std::string& pool, uint64_t retirement) {
  gateway_.retire(pool, retirement);
}

void GatewayScaling::announce(const std::string& pool,
                              const autoscaler::PoolAnnouncement& announcement) {
  gateway_.announce(pool, announcement);
}

}  // namespace pelton::apps
