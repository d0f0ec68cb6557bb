// What an autoscaler decided lately, for the operator's console: a line for each time that a pool's
// number, the rule that set it, or its trouble became another one. The last kLines. One thread.
//
// Example: 2 replicas for demand, still 2, then 3 for demand, then 3 for panic: three lines.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "launch/fleet_scaler.h"

namespace pelton::launch {

class DecisionLog {
 public:
  static constexpr size_t kLines = 64;

  void note(std::span<const FleetScaler::PoolState> states, int64_t unix_ms);

  // {"n":…,"at":…,"pool":…,"desired":…,"before":…,"reason":…,"text":…}, by number, which sorts as
  // text does. `before` is null where nothing was decided before.
  const std::map<std::string, std::string>& rows() const { return rows_; }

 private:
  struct Last {
    int desired = 0;
    autoscaler::Reason reason{};
    std::string failure;
    bool operator==(const Last&) const = default;
  };
  std::map<std::string, Last> last_;  // by pool
  std::map<std::string, std::string> rows_;
  int64_t number_ = 0;
};

}  // namespace pelton::launch
