// Where the engine's thread and the executor's meet: plans one way, results the other, two steps
// between them at most. Owned by the executor.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "base/function_ref.h"
#include "engine/step_plan.h"

namespace pelton::executor {

class StepQueue {
 public:
  // Engine thread.
  void submit(engine::StepPlan plan);
  engine::StepResult collect();  // waits for the oldest

  // Any thread; the executor's then gets no further plan.
  void stop();

  // Executor thread. Waits for the next plan; nothing once stopped.
  std::optional<engine::StepPlan> wait();
  // The next plan while a step runs: nothing if the step is done before there is one, or if
  // `accepts` says no; then it stays.
  std::optional<engine::StepPlan> take_early(
      base::FunctionRef<bool()> is_done,
      base::FunctionRef<bool(const engine::StepPlan& plan)> accepts);
  void deliver(engine::StepResult result);

 private:
  engine::StepPlan take();  // under mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<engine::StepPlan> plans_;      // submitted, not taken
  std::deque<engine::StepResult> results_;  // delivered, not collected
  int in_flight_ = 0;                       // submitted, not collected
  bool stopping_ = false;
};

}  // namespace pelton::executor
