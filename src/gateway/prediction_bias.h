// How far off a worker's predicted times are: measured by predicted, lately, in logarithms (twice
// as slow and twice as fast are as far from 1). A worker that nothing is measured of fades to what
// is typical of its pool, not to 1: where every prediction is three times too long, one that was
// slow once would else look three times slower than those that are used, and never be tried again.
//
// Example: a pool's answers take 0.3 of what was predicted. A worker that took 1.2 is priced
// at 1.2; 10 s later, unused, at 0.6; after 20 s at 0.42. Guarded by its owner.
#pragma once

#include <cstdint>

namespace pelton::gateway {

class PredictionBias {
 public:
  static constexpr double kFadesNs = 10e9;  // to half of its distance from the typical one
  static constexpr double kNewestShare = 0.05;

  void note(double ratio, double typical, int64_t now_ns);
  double at(double typical, int64_t now_ns) const;

  // The typical one with an answer more.
  static double mixed(double before, double ratio);

 private:
  double value_ = 0;  // 0: nothing was measured yet
  int64_t at_ns_ = 0;
};

}  // namespace pelton::gateway
