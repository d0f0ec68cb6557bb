// How often what was observed lay in which range. The ranges are set once. Any thread may observe
// and read; a reading taken meanwhile may lack what is being added.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace pelton::telemetry {

class Histogram {
 public:
  // Upper bounds, each included in its range, ascending; what is above the last has a range too.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value) { observe_times(value, 1); }
  void observe_times(double value, int64_t times);

  struct Reading {
    std::vector<int64_t> up_to;  // by bound, and everything: how many were not above it
    double sum = 0.0;
    int64_t count() const { return up_to.back(); }
  };
  Reading read() const;
  const std::vector<double>& bounds() const { return bounds_; }

 private:
  const std::vector<double> bounds_;
  const std::unique_ptr<std::atomic<int64_t>[]> counts_;  // of each range
  std::atomic<double> sum_{0.0};
};

// 1, 2, 5, 10, 20, 50, … up to `last`, which ends it.
std::vector<double> one_two_five(int64_t last);

}  // namespace pelton::telemetry
