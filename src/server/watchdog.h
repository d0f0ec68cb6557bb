// Watches for a step that never ends. While one has been running for too long the server is not
// well, everybody who waits for the engine gets an error, and whoever owns the process may end it.
// A thread of its own, "pelton-watch"; owned by the program's entry, and gone before the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "engine/engine.h"

namespace pelton::server {

// When a step is stuck: pure, for the thread below and for tests of it.
class StepPatience {
 public:
  // The first look comes a tick after `now_ns`.
  StepPatience(int64_t limit_ns, int64_t tick_ns, int64_t now_ns)
      : limit_ns_(limit_ns), tick_ns_(tick_ns), looked_ns_(now_ns) {}

  // One look, a tick after the last: the step that runs began at `busy_since_ns` (0: none runs). A
  // look that comes late shows that we did not run either (the process was stopped, the machine
  // slept or was starved): such time is not the step's.
  bool stuck(int64_t now_ns, int64_t busy_since_ns);

  // How long the step has had, without such times.
  int64_t step_ns() const { return step_ns_; }

 private:
  const int64_t limit_ns_;
  const int64_t tick_ns_;
  // In which we did not run.
  struct Gap {
    int64_t begin_ns;
    int64_t end_ns;
  };
  int64_t looked_ns_;
  int64_t step_ns_ = 0;
  std::vector<Gap> gaps_;  // since the step began
};

class Watchdog {
 public:
  struct Options {
    int64_t limit_ns = 0;  // above zero
    // On the watchdog's thread, once for each step that is stuck, when all have been ended.
    std::function<void()> on_stuck;
  };

  // All of them outlive it.
  Watchdog(Options options, engine::Engine& engine, const base::Clock& clock, base::Log& log);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Any thread.
  bool stuck() const { return stuck_.load(std::memory_order_relaxed); }
  int64_t limit_ns() const { return options_.limit_ns; }

 private:
  void look();

  const Options options_;
  engine::Engine& engine_;
  const base::Clock& clock_;
  base::Log& log_;
  std::atomic<bool> stuck_{false};

  StepPatience patience_;  // the thread's
  const base::PeriodicThread thread_;
};

}  // namespace pelton::server
