// The part of gateway::Gateway that says who its workers are: those of the file, those that were
// found or launched, and other regions.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/gateway.h"

namespace pelton::gateway {

// A source for each service that pools name; those that stay go on as they are.
void Gateway::watch_services(const GatewayConfig& config) {
  const KubernetesConfig& api = config.kubernetes;
  Services services;
  {
    std::lock_guard lock(services_mutex_);
    services.swap(services_);
  }
  Services wanted;
  for (const PoolConfig& pool : config.pools) {
    if (pool.kubernetes_service.empty()) continue;
    const std::string key =
        fmt::format("{} {}/{}:{} {} {}", pool.name, pool.kubernetes_namespace,
                    pool.kubernetes_service, pool.kubernetes_port, api.api, api.token_file);
    if (const auto known = services.find(key); known != services.end()) {
      wanted.insert(services.extract(known));
      continue;
    }
    wanted[key] = std::make_unique<KubernetesSource>(
        KubernetesSource::Options{
            .api = {.api = api.api, .token_file = api.token_file, .trust = kubernetes_trust_},
            .name_space = pool.kubernetes_namespace,
            .service = pool.kubernetes_service,
            .target = {.pool = pool.name, .port = pool.kubernetes_port},
            .changed = [this] { set_members(); }},
        log_);
  }
  std::lock_guard lock(services_mutex_);
  services_ = std::move(wanted);
}

// But for those that stand where no worker may (GW-04), which the log names once.
std::vector<WorkerConfig> Gateway::found(const GatewayConfig& config) {
  constexpr size_t kRefusedMax = 1024;
  std::vector<WorkerConfig> all = dns_.found();
  {
    std::lock_guard lock(services_mutex_);
    for (const auto& [key, service] : services_) {
      for (WorkerConfig& one : service->found()) all.push_back(std::move(one));
    }
  }
  // What an operator's own name leads to is meant, unless he says where workers stand.
  const size_t named = config.allowed_cidrs.empty() ? all.size() : 0;
  if (etcd_ != nullptr) {
    for (WorkerConfig& one : etcd_->found()) all.push_back(std::move(one));
  }
  const auto is_refused = [&](const WorkerConfig& one) {
    if (may_be_worker(one.host, config.allowed_cidrs)) return false;
    if (refused_.size() < kRefusedMax && refused_.insert(one.host).second) {
      log_.warning(
          fmt::format("a worker at {} is refused: workers may stand in 'allowed_cidrs', or "
                      "without these in private networks",
                      one.host));
    }
    return true;
  };
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(named);
  all.erase(std::remove_if(begin, all.end(), is_refused), all.end());
  return all;
}

void Gateway::set_members() {
  std::lock_guard lock(members_mutex_);
  const Config settings = config();
  std::vector<WorkerConfig> workers = settings->config.workers;
  workers.insert(workers.end(), launched_.begin(), launched_.end());
  region_watch_.set(settings->config.regions);
  for (WorkerConfig& found : this->found(settings->config)) {
    const bool is_known = std::ranges::any_of(workers, [&](const WorkerConfig& other) {
      return other.host == found.host && other.port == found.port;
    });
    if (!is_known) workers.push_back(std::move(found));
  }
  for (WorkerConfig& region : region_workers(settings->config))
    workers.push_back(std::move(region));
  fleet_.set_members(settings->config.pools, workers, settings->config.zones);
}

void Gateway::set_launched(std::vector<WorkerConfig> workers) {
  {
    std::lock_guard lock(members_mutex_);
    launched_ = std::move(workers);
  }
  set_members();
}

}  // namespace pelton::gateway
