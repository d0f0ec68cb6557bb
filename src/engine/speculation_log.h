// A line a minute of what guessing brings, while something is decoded: how many guesses there are,
// how many were right, what steps and guessing take, who guessed, and why it is off where it is.
// Owned by the engine's loop; its thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/log.h"
#include "engine/draft_controller.h"
#include "engine/scheduler_counters.h"

namespace pelton::engine {

class SpeculationLog {
 public:
  static constexpr int64_t kEveryNs = 60'000'000'000;

  explicit SpeculationLog(base::Log& log) : log_(log) {}

  // After each step.
  void note(int64_t now_ns, const SchedulerCounters& counters,
            const DraftController::Report& report, std::span<const std::string> proposers);

 private:
  base::Log& log_;
  int64_t begun_ns_ = -1;     // of the minute at hand; negative: none yet
  SchedulerCounters before_;  // when it began
};

}  // namespace pelton::engine
