// Whole replicas for a need in parts of one. Pure.
#pragma once

#include <algorithm>
#include <cmath>

namespace pelton::autoscaler {

inline constexpr int kReplicasMax = 10'000;

// The least whole number not below `need`, but for rounding errors: 3.0000000001 is 3.
inline int replica_count(double need) {
  constexpr double kRounding = 1e-9;
  if (!std::isfinite(need)) return need > 0 ? kReplicasMax : 0;
  const double whole = std::ceil(need * (1 - kRounding) - kRounding);
  return static_cast<int>(std::clamp(whole, 0.0, static_cast<double>(kReplicasMax)));
}

}  // namespace pelton::autoscaler
