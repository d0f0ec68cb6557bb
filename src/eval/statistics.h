// How sure a share of right answers is, and a difference between two of them over the same tasks.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace pelton::eval {

struct Interval {
  double low = 0;
  double high = 0;
};

// 95 % interval of a share (Wilson, 1927). n = 0: [0, 1].
Interval wilson_interval(int64_t right, int64_t n);

// Two-sided exact p of McNemar's test: of tasks that only one of two was right about, `only_a` and
// `only_b`, under "both are equally good". 1 where there are none.
//
// Example: 1 and 8 of 9 -> 2 (C(9,0) + C(9,1)) / 2^9 = 0.0390625.
double mcnemar_p(int64_t only_a, int64_t only_b);

// 95 % interval of the mean of `differences` (b minus a, task by task), by resampling the tasks
// (percentile bootstrap, `rounds` times); the same for the same seed.
Interval bootstrap_interval(std::span<const double> differences, uint64_t seed, int rounds);

}  // namespace pelton::eval
