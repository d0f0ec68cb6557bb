// Processes of this machine behind a provider that is played: machines come some time after they
// are ordered, no more than a quota, none while there is no stock, and are taken back after a
// notice. To rehearse what a pool does then, with real replicas and in real time.
//
// What has been ordered and is still to come is known here alone: of a launcher that ends it is
// forgotten, as nothing runs of it. What runs the next one finds (local_launcher.h).
//
// One owner, one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "launch/launcher.h"
#include "launch/local_launcher.h"

namespace pelton::launch {

// Seconds since the launcher was opened.
struct ProvidedMachines {
  int quota = 10'000;  // at a time: ordered, running and stopping
  // From an order until the process is started: drawn, log-normal with this median and this 90th
  // percentile; a percentile that is not above the median: always as long.
  double lead_s = 0;
  double lead_p90_s = 0;
  struct StockOut {
    double at_s = 0;
    double for_s = 0;
  };
  std::vector<StockOut> stock_outs;  // nothing can be ordered meanwhile
  // Each machine is taken back so long after it has begun to serve; 0: none is.
  double reclaim_after_s = 0;
  double reclaim_notice_s = 30;  // and is known to be, so long before
  uint64_t seed = 0;
};

class SimulatedProvider final : public Launcher {
 public:
  // By pool. `clock` and `log` outlive it.
  SimulatedProvider(std::map<std::string, ProvidedMachines> pools,
                    std::unique_ptr<LocalLauncher> processes, const base::Clock& clock,
                    base::Log& log);

  Result<void> start(const ReplicaOrder& order) override;
  void stop(const ReplicaOrder& order, std::chrono::milliseconds grace) override;
  std::vector<LaunchedReplica> list() override;
  uint64_t newest_token() const override;

  LocalLauncher& processes() { return *processes_; }

 private:
  using Place = std::pair<std::string, int>;  // pool, ordinal
  struct Coming {
    ReplicaOrder order;
    int64_t ordered_ns = 0;
    int64_t comes_ns = 0;
    std::string ended;  // it was stopped, or could not be started; empty: it comes
  };

  Result<void> check(const ReplicaOrder& order, const ProvidedMachines& machines);
  double lead_s(const ProvidedMachines& machines);
  void bring();
  void take_back(LaunchedReplica& replica);

  const std::map<std::string, ProvidedMachines> pools_;
  const std::unique_ptr<LocalLauncher> processes_;
  const base::Clock& clock_;
  base::Log& log_;
  const int64_t opened_ns_;
  uint64_t draws_ = 0;
  uint64_t newest_token_ = 0;
  std::map<Place, Coming> coming_;
  std::map<ReplicaOrder, int64_t> serves_since_ns_;
};

}  // namespace pelton::launch
