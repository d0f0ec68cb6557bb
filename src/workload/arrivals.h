// When requests come: an open loop's times, known before the run begins, so that a slow server
// cannot slow down who asks it (no coordinated omission). Pure functions of their options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::workload {

// A rate that changes from the first request to the last: p = i / (count - 1).
struct Ramp {
  enum class Shape {
    kLinear,       // start + (end - start) p
    kExponential,  // start (end / start)^p
  };
  Shape shape = Shape::kLinear;
  double start_rps = 1;
  double end_rps = 1;
};

// A day in which demand rises and falls: rate * (1 + swing * sin(2 pi t / period)).
struct Day {
  double swing = 0.5;  // 0 to 1: the trough is rate * (1 - swing)
  double period_s = 86'400;
};

// More requests for a while, on top of whatever else comes.
struct Spike {
  double at_s = 0;
  double for_s = 1;
  double rps = 1;
};

struct Arrivals {
  // Requests per second; infinite: all at once, and a closed loop if concurrency is limited.
  double rate = 0;
  // Shape of the gaps' gamma distribution: 1 is Poisson, below it comes in bursts, above it more
  // evenly, infinite is a metronome.
  double burstiness = 1;
  std::optional<Ramp> ramp;  // instead of rate
  std::optional<Day> day;    // on top of rate
  std::vector<Spike> spikes;
  uint64_t seed = 0;
};

// `count` times in seconds from the start, rising. Gaps are Gamma(burstiness, 1 / (rate *
// burstiness)); the first request waits a gap too, but all at once is all at 0. Without ramp
// the gaps are stretched so that the last comes when count are expected: without day and spikes at
// count / rate, so that a short run has the rate it was asked for. Errors: kInvalidArgument.
Result<std::vector<double>> arrival_times(const Arrivals& arrivals, int64_t count);

// "inf" or a number above 0.
Result<double> parse_rate(std::string_view text, const std::string& field);

}  // namespace pelton::workload
