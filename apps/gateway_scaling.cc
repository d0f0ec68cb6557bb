#include "apps/gateway_scaling.h"

#include <algorithm>
#include <utility>

#include "apps/own_server.h"
#include "launch/scaler_pages.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

std::vector<std::string> serve_arguments(const gateway::LaunchConfig& launch,
                                         const std::string& fleet_key_file) {
  std::vector<std::string> words = {"serve"};
  words.insert(words.end(), launch.serve.begin(), launch.serve.end());
  for (const char* word : {"--port", "0", "--fleet-port", "0", "--fleet-name", "{name}"}) {
    words.emplace_back(word);
  }
  if (fleet_key_file.empty()) return words;
  words.emplace_back("--fleet-key-file");
  words.push_back(fleet_key_file);
  return words;
}

bool is_ready(cluster::WorkerState state) {
  return state == cluster::WorkerState::kReady || state == cluster::WorkerState::kDraining;
}

bool is_silent(cluster::WorkerState state) {
  return state == cluster::WorkerState::kDown || state == cluster::WorkerState::kSuspect;
}

}  // namespace

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
  const bool starts_some = std::ranges::any_of(config.pools, [](const gateway::PoolConfig& pool) {
    return pool.scaling && pool.scaling->launch;
  });
  if (starts_some) return {};
  return Error{ErrorCode::kBadConfig,
               "--with-autoscaler needs a [[pool]] with [pool.scale] and [pool.launch]",
               "with-autoscaler"};
}

Result<std::unique_ptr<GatewayScaling>> GatewayScaling::make(const gateway::GatewayConfig& config,
                                                             gateway::Gateway& gateway,
                                                             DemandSignal& signal,
                                                             const base::Clock& clock,
                                                             base::Log& log) {
  launch::LocalLauncher::Options options{.folder = config.state_dir};
  std::vector<launch::ScaledPool> pools;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!pool.scaling || !pool.scaling->launch) continue;
    const gateway::LaunchConfig& launch = *pool.scaling->launch;
    options.pools[pool.name] = serve_arguments(launch, config.fleet_key_file);
    pools.push_back({.name = pool.name,
                     .policy = pool.scaling->policy,
                     .start_s = launch.start_s,
                     .progress_s = launch.progress_s,
                     .stop_grace_s = launch.stop_grace_s,
                     .is_advised_only = pool.scaling->is_advised_only});
  }
  TRY_ASSIGN(options.program, own_program());
  TRY_ASSIGN(std::unique_ptr<launch::LocalLauncher> launcher,
             launch::LocalLauncher::open(std::move(options), clock, log));
  return std::unique_ptr<GatewayScaling>(
      new GatewayScaling(std::move(pools), std::move(launcher), gateway, signal, clock, log));
}

GatewayScaling::GatewayScaling(std::vector<launch::ScaledPool> pools,
                               std::unique_ptr<launch::LocalLauncher> launcher,
                               gateway::Gateway& gateway, DemandSignal& signal,
                               const base::Clock& clock, base::Log& log)
    : gateway_(gateway),
      signal_(signal),
      launcher_(std::move(launcher)),
      scaler_(std::move(pools), *launcher_, *this, clock, log) {}

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
  launcher_->stop_all(grace);
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
  net::HttpResponse response{
      .status = 200, .headers = {}, .body = launch::states_body(scaler_.states())};
  response.headers.add("Content-Type", "application/json");
  return response;
}

void GatewayScaling::add_metrics(telemetry::PrometheusText& text) const {
  launch::add_metrics(scaler_.states(), text);
}

std::vector<autoscaler::GatewayReport> GatewayScaling::reports(const std::string& pool) {
  return gateway_.demand(pool);
}

std::vector<launch::ScaledFleet::Worker> GatewayScaling::workers(const std::string& pool) {
  std::vector<Worker> workers;
  for (const gateway::Fleet::Row& row : gateway_.workers()) {
    const Result<net::HostPort> address = net::parse_host_port(row.url);
    if (row.pool != pool || !address.ok()) continue;
    workers.push_back({.host = address->host,
                       .port = address->port,
                       .is_ready = is_ready(row.state),
                       .is_silent = is_silent(row.state),
                       .slots = row.record.slots,
                       .open = row.open,
                       .running = row.load.running,
                       .waiting = row.load.waiting,
                       .kv_used = row.load.kv_used});
  }
  return workers;
}

void GatewayScaling::set_launched(const std::vector<Address>& addresses) {
  std::vector<gateway::WorkerConfig> workers;
  for (const Address& one : addresses) {
    workers.push_back({.pool = one.pool, .host = one.host, .port = one.port});
  }
  gateway_.set_launched(std::move(workers));
}

void GatewayScaling::set_draining(const Address& address, bool draining) {
  gateway_.set_draining(address.host, address.port, draining);
}

void GatewayScaling::retire(const std::string& pool, uint64_t retirement) {
  gateway_.retire(pool, retirement);
}

void GatewayScaling::announce(const std::string& pool,
                              const autoscaler::PoolAnnouncement& announcement) {
  gateway_.announce(pool, announcement);
}

}  // namespace pelton::apps
