// What clients learn from gateways of a pool whose replicas come and go. A value, made by whoever
// decides.
#pragma once

#include <string>
#include <string_view>

namespace pelton::autoscaler {

enum class PoolPhase { kCold, kStarting, kReady };

constexpr std::string_view pool_phase_name(PoolPhase phase) {
  return phase == PoolPhase::kReady ? "ready" : phase == PoolPhase::kStarting ? "starting" : "cold";
}

struct PoolAnnouncement {
  PoolPhase phase = PoolPhase::kCold;
  double eta_s = 0;     // until a request that comes now would be served; 0 when ready
  std::string failure;  // why it does not start; empty: it does
  double again_s = 0;   // with a failure: until the next attempt

  bool operator==(const PoolAnnouncement&) const = default;
};

}  // namespace pelton::autoscaler
