// One run of another program, waited for: bounded in time and in what it may print. Blocks; any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::launch {

struct ProgramRun {
  int code = 0;  // as it ended; 128 + N: by the signal N
  std::string out;
  std::string err;
};

struct ProgramBounds {
  std::chrono::milliseconds time_max{10'000};
  size_t bytes_max = size_t{8} << 20;              // of out; of err what is more is passed over
  int64_t memory_bytes_max = 0;                    // that it may allocate; 0: as this process may
  int nice = 0;                                    // 19: only with what nobody else wants
  const std::atomic<bool>* is_given_up = nullptr;  // true: nobody waits any more
};

// `words`: the program, looked for in PATH, and its arguments. `left_out`: beginnings of variables
// that it does not inherit. Errors: kNotFound: it is not there;
// kDeadline, kCancelled (given up), and kIo where it prints too much: it was killed, with what it
// had started.
Result<ProgramRun> run_program(const std::vector<std::string>& words, std::string_view input,
                               const ProgramBounds& bounds,
                               std::span<const std::string_view> left_out = {});

}  // namespace pelton::launch
