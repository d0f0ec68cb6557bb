// What compiling one schema may cost, in time and memory: asked at every step that could be
// repeated without end. Owned by one compilation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "grammar/compile_deadline.h"

namespace pelton::grammar {

struct CompileBudget {
  // `of_request` outlives it; null: this budget's own time is all there is.
  CompileBudget(int64_t time_us_max, size_t bytes_max, const CompileDeadline* of_request)
      : bytes_left(static_cast<int64_t>(bytes_max)),
        until_us(now_us() + time_us_max),
        deadline(of_request) {}

  // False: no more. Looks at the clock once in a while.
  bool step(uint64_t steps) {
    steps_left_ -= static_cast<int64_t>(steps);
    if (steps_left_ > 0) return !exhausted;
    steps_left_ = 512;
    exhausted = exhausted || now_us() > until_us || (deadline != nullptr && deadline->passed());
    return !exhausted;
  }
  bool take(size_t bytes) {
    bytes_left -= static_cast<int64_t>(bytes);
    exhausted = exhausted || bytes_left < 0;
    return !exhausted;
  }

  static int64_t now_us() { return CompileDeadline::thread_cpu_us(); }

  bool exhausted = false;
  int64_t bytes_left;
  const int64_t until_us;
  const CompileDeadline* const deadline;

 private:
  int64_t steps_left_ = 512;
};

}  // namespace pelton::grammar
