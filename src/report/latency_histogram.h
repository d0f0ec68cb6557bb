// Counts latencies in buckets of equal ratio, so that a run of any length takes the same memory and
// a percentile is at most 3 % off. A value; one thread, or a lock around it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace pelton::report {

class LatencyHistogram {
 public:
  void add_ms(double ms);

  int64_t count() const { return count_; }
  double percentile_ms(double percent) const;  // 0 where nothing was counted

  // `columns` blocks of eight heights over the buckets in use, as a terminal shows them: "▁▃█▂".
  // Empty where nothing was counted.
  std::string sparkline(int columns) const;
  double least_ms() const;  // bounds of the buckets in use
  double most_ms() const;

 private:
  // From 10 us on, each 1/16 octave; the last takes all above some 3 hours.
  static constexpr int kBuckets = 16 * 30;
  static double lower_ms(int bucket);

  int first_used() const;
  int last_used() const;

  std::array<int64_t, kBuckets> counts_{};
  int64_t count_ = 0;
};

}  // namespace pelton::report
