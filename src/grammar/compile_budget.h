// What compiling one schema may cost, in time and memory: asked at every step that could be
// repeated without end. Owned by one compilation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace pelton::grammar {

struct CompileBudget {
  CompileBudget(int64_t time_us_max, size_t bytes_max)
      : bytes_left(static_cast<int64_t>(bytes_max)), until_us(now_us() + time_us_max) {}

  // False: no more. Looks at the clock once in a while.
  bool step(uint64_t steps) {
    steps_left_ -= static_cast<int64_t>(steps);
    if (steps_left_ > 0) return !exhausted;
    steps_left_ = 512;
    exhausted = exhausted || now_us() > until_us;
    return !exhausted;
  }
  bool take(size_t bytes) {
    bytes_left -= static_cast<int64_t>(bytes);
    exhausted = exhausted || bytes_left < 0;
    return !exhausted;
  }

  static int64_t now_us() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  }

  bool exhausted = false;
  int64_t bytes_left;
  const int64_t until_us;

 private:
  int64_t steps_left_ = 512;
};

}  // namespace pelton::grammar
