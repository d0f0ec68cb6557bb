#include "apps/scaled_pools.h"

#include <utility>

#include "apps/own_server.h"
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

std::vector<launch::ScaledPool> scaled_pools(const gateway::GatewayConfig& config) {
  std::vector<launch::ScaledPool> pools;
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!pool.scaling || !pool.scaling->launch) continue;
    const gateway::LaunchConfig& launch = *pool.scaling->launch;
    pools.push_back({.name = pool.name,
                     .policy = pool.scaling->policy,
                     .start_s = launch.start_s,
                     .progress_s = launch.progress_s,
                     .stop_grace_s = launch.stop_grace_s,
                     .is_advised_only = pool.scaling->is_advised_only});
  }
  return pools;
}

Result<std::unique_ptr<launch::LocalLauncher>> open_launcher(const gateway::GatewayConfig& config,
                                                             const base::Clock& clock,
                                                             base::Log& log) {
  launch::LocalLauncher::Options options{.folder = config.autoscaler.state_dir};
  for (const gateway::PoolConfig& pool : config.pools) {
    if (!pool.scaling || !pool.scaling->launch) continue;
    options.pools[pool.name] = serve_arguments(*pool.scaling->launch, config.fleet_key_file);
  }
  TRY_ASSIGN(options.program, own_program());
  return launch::LocalLauncher::open(std::move(options), clock, log);
}

std::vector<launch::ScaledFleet::Worker> scaled_workers(const gateway::Gateway& gateway,
                                                        const std::string& pool) {
  std::vector<launch::ScaledFleet::Worker> workers;
  for (const gateway::Fleet::Row& row : gateway.workers()) {
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

std::vector<gateway::WorkerConfig> launched_workers(
    const std::vector<launch::ScaledFleet::Address>& addresses) {
  std::vector<gateway::WorkerConfig> workers;
  for (const launch::ScaledFleet::Address& one : addresses) {
    workers.push_back({.pool = one.pool, .host = one.host, .port = one.port});
  }
  return workers;
}

}  // namespace pelton::apps
