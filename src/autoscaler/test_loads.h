// For tests and benchmarks: loads of a virtual hour in whole requests of each second, as random as
// a Poisson process, and what a policy makes of them in a TestPool. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <vector>

#include "autoscaler/test_pool.h"
#include "base/random.h"

namespace pelton::autoscaler {

inline constexpr const char* kTestLoads[] = {
    "step", "square", "saw", "two spikes", "sine", "sine with bursts", "bursts", "start of a day"};

// Requests a second, of which a replica serves `kTestSlots`.
inline constexpr int kTestSlots = 8;
inline double test_rate(int load, double t_s, double length_s) {
  constexpr double kLow = 8;
  constexpr double kHigh = 80;
  const double share = t_s / length_s;
  const double day = 44 - 36 * std::cos(2 * std::numbers::pi * share);
  const auto within = [&](double from, double to) { return share >= from && share < to; };
  switch (load) {
    case 0:
      return within(1 / 3.0, 2 / 3.0) ? kHigh : kLow;
    case 1:
      return static_cast<int>(share * 12) % 2 == 1 ? kHigh : kLow;
    case 2:
      return kLow + (kHigh - kLow) * std::fmod(share, 1 / 6.0) * 6;
    case 3:
      return within(0.28, 0.288) || within(0.69, 0.698) ? 240 : kLow;
    case 4:
      return day;
    case 5:
      return day + (base::random_unit(5, static_cast<uint64_t>(t_s)) < 0.05 ? kHigh : 0);
    case 6:
      return base::random_unit(6, static_cast<uint64_t>(t_s)) < 0.1 ? 120 : 4;
    default:
      return share < 0.5 ? 0.8 : 32;
  }
}

inline int poisson(double mean, uint64_t seed, uint64_t index) {
  // By the sum of exponential gaps.
  double gone = 0;
  int count = -1;
  for (uint64_t draw = 0; gone < mean || count < 0; ++draw) {
    gone -= std::log(1 - base::random_unit(seed, index * 1'000 + draw));
    ++count;
  }
  return count;
}

inline std::vector<int> test_load(int load, int seconds, uint64_t seed) {
  std::vector<int> requests;
  for (int second = 0; second < seconds; ++second) {
    requests.push_back(
        poisson(test_rate(load, second, seconds), seed, static_cast<uint64_t>(second)));
  }
  return requests;
}

// What a policy makes of it.
struct Played {
  int64_t late = 0;  // also those that wait at the end
  int64_t requests = 0;
  double replica_s = 0;
  int direction_changes = 0;
  int most = 0;

  double late_share() const {
    return static_cast<double>(late) / static_cast<double>(std::max<int64_t>(requests, 1));
  }
};

inline Played play(const TestPool::Options& options, int at_first,
                   const std::vector<int>& requests) {
  TestPool pool(options);
  pool.give(at_first);
  Played played;
  for (const int count : requests) {
    pool.second(count);
    played.requests += count;
    played.most = std::max(played.most, pool.replicas());
  }
  played.late = pool.late() + pool.held();
  played.replica_s = pool.replica_hours() * 3600;
  played.direction_changes = pool.direction_changes();
  return played;
}

}  // namespace pelton::autoscaler
