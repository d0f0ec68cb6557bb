// What the operator's console shows of a gateway (console/feed.h): a sample a second of its
// requests and pools, and rows of its workers and of what became of requests, numbers and names
// only. One thread.
//
// Example: 40 requests of a pool had ended well when it was last asked, and half a second later 43
// have: "ok" is 6 a second.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gateway/fleet.h"
#include "gateway/gateway_figures.h"

namespace pelton::gateway {

class FleetSampler {
 public:
  // Pools whose numbers a sample has; those behind them, by name, are in the rows only.
  static constexpr size_t kPoolsShown = 16;

  // As they stand; all but the first three and the held ones only rise.
  struct Sums {
    int64_t open = 0;     // requests not answered yet
    int64_t waiting = 0;  // of these, no worker has them
    int64_t retries = 0;
    int64_t moves = 0;
    int64_t interrupted = 0;
    int64_t unserved = 0;
    std::vector<GatewayFigures::Ended> ended;
    std::map<std::string, int64_t> held;  // of pools whose replicas come and go
  };

  // The members of a JSON object. `now_ns` is the steady clock's, which rates come from; the
  // calendar's is only shown.
  std::string sample(const Sums& sums, std::span<const Fleet::Row> workers, int64_t now_ns,
                     int64_t unix_ms);

 private:
  std::array<int64_t, GatewayFigures::kOutcomes.size()> ended_{};  // of the last time
  int64_t ended_ns_ = 0;                                           // 0: there was none
};

// Whether a worker in this state says what its load is; what it said last stays in its row.
bool reports_now(cluster::WorkerState state);

// By name and address.
std::map<std::string, std::string> worker_rows(std::span<const Fleet::Row> workers);
// By pool: {"pool":…,"ok":…,"client_error":…,"error":…,"left":…,"held":…}.
std::map<std::string, std::string> request_rows(const FleetSampler::Sums& sums);

}  // namespace pelton::gateway
