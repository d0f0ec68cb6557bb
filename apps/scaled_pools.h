// The pools of a configuration as whoever scales them has them, and the launcher that starts their
// replicas: for the gateway with its autoscaler and for the autoscaler's own process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/kubernetes_api.h"
#include "gateway/gateway.h"
#include "launch/fleet_scaler.h"
#include "launch/launcher_set.h"
#include "launch/order_check.h"

namespace pelton::apps {

// Errors: kIo: the file of its authority cannot be read.
Result<cluster::KubernetesApi::Options> kubernetes_api_options(
    const gateway::KubernetesConfig& config);
// Whether `pelton serve` would take what pools' `serve` says, as a replica's command line; files
// that it names are not read, as they may lie elsewhere. Errors: kBadConfig, "FILE:LINE: ...".
Result<void> check_launched(const gateway::GatewayConfig& config);
// It has [pool.scale] and [pool.launch], or is advised only.
bool is_decided_on(const gateway::PoolConfig& pool);
// Whether what pools are never to be without fits into the GPUs that they share. Errors:
// kBadConfig, "FILE:LINE: ...".
Result<void> check_gpus(const gateway::GatewayConfig& config);
// Those that are decided on.
std::vector<launch::ScaledPool> scaled_pools(const gateway::GatewayConfig& config);
// One for all of these pools; `epoch`: of whoever leads; 0: nobody else is there. Errors: those of
// launch::LocalLauncher::open(), SiteLauncher::open() and SlurmSite::open(), kBadConfig. `clock`
// and `log` outlive it.
Result<std::unique_ptr<launch::LauncherSet>> open_launcher(const gateway::GatewayConfig& config,
                                                           uint64_t epoch, const base::Clock& clock,
                                                           base::Log& log);
// What orders of an autoscaler that is another process may be about. `config` outlives it.
launch::OrderRules order_rules(const gateway::GatewayConfig& config);
// A gateway's workers, as the decider sees them.
std::vector<launch::ScaledFleet::Worker> scaled_workers(const gateway::Gateway& gateway,
                                                        const std::string& pool);
std::vector<gateway::WorkerConfig> launched_workers(
    const std::vector<launch::ScaledFleet::Address>& addresses);

}  // namespace pelton::apps
