// Random numbers of a workload, drawn one after the other from a counter-based stream: one seed
// gives one workload, on every machine. A value; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace pelton::workload {

class Draws {
 public:
  // Streams of one seed and different names have nothing in common: a longer prompt does not move
  // the arrivals.
  Draws(uint64_t seed, uint64_t stream) : name_(base::mix64(seed ^ base::mix64(stream + 1))) {}

  double unit() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }  // uniform in [0, 1)
  int64_t integer(int64_t least, int64_t most);  // uniform, both ends included
  double normal();                               // mean 0, variance 1
  double gamma(double shape, double scale);      // mean shape * scale; shape > 0

 private:
  uint64_t bits() { return base::mix64(name_ + ++counter_ * 0x9E3779B97F4A7C15ull); }

  const uint64_t name_;
  uint64_t counter_ = 0;
};

// One of some things, the i-th 1 / i^skew times as often as the first: 0 is evenly, 1 Zipf's law.
class SkewedChoice {
 public:
  SkewedChoice(size_t count, double skew);

  bool empty() const { return shares_.empty(); }
  size_t at(double unit) const;  // of a number in [0, 1); not of none

 private:
  std::vector<double> shares_;  // of the first i together; the last is 1
};

}  // namespace pelton::workload
