// Until when what is being compiled is wanted: so much processor time of the thread that compiles,
// not after a moment that whoever asks for it names, and no longer than he stays. One for all
// formats of a request; the compilers ask it in their loops and end with kDoesNotFit, so an Error
// says little by itself once passed(). Made on the thread that compiles, and used there.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <optional>

#include "base/clock.h"

namespace pelton::grammar {

class CompileDeadline {
 public:
  struct Options {
    int64_t cpu_us_max = 0;
    const std::atomic<bool>* stopped = nullptr;  // set by any thread; null: nobody stops it
    std::optional<int64_t> until_ns = {};        // on `clock`
    const base::Clock* clock = nullptr;
  };

  // What the options name outlives it.
  explicit CompileDeadline(const Options& options)
      : options_(options), until_us_(thread_cpu_us() + options.cpu_us_max) {}

  bool is_stopped() const {
    return options_.stopped != nullptr && options_.stopped->load(std::memory_order_relaxed);
  }
  bool is_expired() const {
    return options_.until_ns && options_.clock->now_ns() > *options_.until_ns;
  }
  bool is_used_up() const { return thread_cpu_us() > until_us_; }
  // Reads clocks, some 0.2 us: to be asked once in some hundred steps.
  bool passed() const { return is_stopped() || is_expired() || is_used_up(); }

  int64_t left_us() const { return until_us_ - thread_cpu_us(); }
  int64_t cpu_us_max() const { return options_.cpu_us_max; }
  // What this thread did in between was for everybody, not for this request.
  void extend(int64_t cpu_us) { until_us_ += cpu_us; }

  // Processor time that this thread has used.
  static int64_t thread_cpu_us() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  }

 private:
  const Options options_;
  int64_t until_us_;
};

}  // namespace pelton::grammar
