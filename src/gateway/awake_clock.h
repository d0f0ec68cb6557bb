// Time in which this process ran. While it is stopped, or its clock is stepped, nobody else has
// been silent: whoever judges others by their silence measures it with this clock, so that a pause
// of everything makes nobody suspect. It wants to be read more often than `gap_max`; what lies
// between two readings beyond that is left out. Example, with 200 ms: read at 100, 150, 10 150, it
// says 100, 150, 350. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace pelton::gateway {

class AwakeClock final : public base::Clock {
 public:
  // `clock` outlives it.
  AwakeClock(const base::Clock& clock, std::chrono::nanoseconds gap_max)
      : clock_(clock), gap_max_ns_(gap_max.count()), last_ns_(clock.now_ns()) {}

  int64_t now_ns() const override;
  int64_t unix_ms() const override { return clock_.unix_ms(); }

 private:
  const base::Clock& clock_;
  const int64_t gap_max_ns_;
  mutable std::mutex mutex_;
  mutable int64_t last_ns_;          // guarded by mutex_, as the next
  mutable int64_t left_out_ns_ = 0;  // of the clock's time, so far
};

}  // namespace pelton::gateway
