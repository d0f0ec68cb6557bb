// How often what was observed lay in which range. The ranges are set once. Any thread may observe
// and read; a reading taken meanwhile may lack what is being added. Threads that observe at the
// same moment on different processors do not meet: each processor has counts of its own, that a
// reading adds up.
#pragma once

#include <atomic>
#include <cstddef>
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
  // Of many processors several share one.
  static constexpr size_t kParts = 8;
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kLineCounts = kLineBytes / sizeof(int64_t);

  struct alignas(kLineBytes) Line {
    std::atomic<int64_t> counts[kLineCounts] = {};
  };
  struct alignas(kLineBytes) Sum {
    std::atomic<double> value{0.0};
  };

  std::atomic<int64_t>& count(size_t part, size_t range) const {
    return counts_[part * part_lines_ + range / kLineCounts].counts[range % kLineCounts];
  }

  const std::vector<double> bounds_;
  const size_t part_lines_;
  const std::unique_ptr<Line[]> counts_;  // of each part's ranges
  const std::unique_ptr<Sum[]> sums_;
};

// 1, 2, 5, 10, 20, 50, … up to `last`, which ends it.
std::vector<double> one_two_five(int64_t last);

}  // namespace pelton::telemetry
