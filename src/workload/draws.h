// Random numbers of a workload, drawn one after the other from a counter-based stream: one seed
// gives one workload, on every machine. A value; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pelton::workload {

class Draws {
 public:
  // Streams of one seed and different names have nothing in common: a longer prompt does not move
  // the arrivals.
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  double unit();                                 // uniform in [0, 1)
  int64_t integer(int64_t least, int64_t most);  // uniform, both ends included
  double normal();                               // mean 0, variance 1
  double gamma(double shape, double scale);      // mean shape * scale; shape > 0

 private:
  uint64_t bits();

  const uint64_t seed_;
  const uint64_t stream_;
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
