// Several launchers as one: each pool has its own. One owner, one thread.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/launcher.h"
#include "launch/local_launcher.h"
#include "launch/simulated_provider.h"

namespace pelton::launch {

class LauncherSet final : public Launcher {
 public:
  void add(const std::vector<std::string>& pools, std::unique_ptr<Launcher> launcher) {
    for (const std::string& pool : pools) of_pool_[pool] = launcher.get();
    all_.push_back(std::move(launcher));
  }
  void add_local(const std::vector<std::string>& pools, std::unique_ptr<LocalLauncher> launcher) {
    locals_.push_back(launcher.get());
    add(pools, std::move(launcher));
  }
  void add_simulated(const std::vector<std::string>& pools,
                     std::unique_ptr<SimulatedProvider> launcher) {
    locals_.push_back(&launcher->processes());
    add(pools, std::move(launcher));
  }

  Result<void> start(const ReplicaOrder& order) override {
    const auto found = of_pool_.find(order.pool);
    if (found != of_pool_.end()) return found->second->start(order);
    return Error{ErrorCode::kInvalidArgument,
                 "nothing says how replicas of " + order.pool + " are started",
                 {}};
  }
  void stop(const ReplicaOrder& order, std::chrono::milliseconds grace) override {
    // Of a pool that is no longer there, whoever has the replica stops it.
    for (const std::unique_ptr<Launcher>& one : all_) one->stop(order, grace);
  }
  std::vector<LaunchedReplica> list() override {
    std::vector<LaunchedReplica> all;
    for (const std::unique_ptr<Launcher>& one : all_) {
      for (LaunchedReplica& replica : one->list()) all.push_back(std::move(replica));
    }
    return all;
  }
  uint64_t newest_token() const override {
    uint64_t newest = 0;
    for (const auto& one : all_) newest = std::max(newest, one->newest_token());
    return newest;
  }

  bool is_known(const std::string& pool) const override {
    const auto found = of_pool_.find(pool);
    return found == of_pool_.end() || found->second->is_known(pool);
  }

  // Of this machine's: stops all and waits for it. The others' stay.
  void stop_local(std::chrono::milliseconds grace) {
    for (LocalLauncher* const one : locals_) one->stop_all(grace);
  }

 private:
  std::vector<std::unique_ptr<Launcher>> all_;
  std::map<std::string, Launcher*> of_pool_;
  std::vector<LocalLauncher*> locals_;  // of `all_`
};

}  // namespace pelton::launch
