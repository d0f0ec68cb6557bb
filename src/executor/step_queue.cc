#include "executor/step_queue.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace pelton::executor {

void StepQueue::submit(engine::StepPlan plan) {
  {
    std::lock_guard lock(mutex_);
    CHECK(in_flight_ < 2, "at most two steps may be in flight");
    ++in_flight_;
    plans_.push_back(std::move(plan));
  }
  changed_.notify_all();
}

engine::StepResult StepQueue::collect() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !results_.empty(); });
  engine::StepResult result = std::move(results_.front());
  results_.pop_front();
  --in_flight_;
  return result;
}

void StepQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

std::optional<engine::StepPlan> StepQueue::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !plans_.empty(); });
  if (stopping_) return std::nullopt;
  return take();
}

std::optional<engine::StepPlan> StepQueue::take_early(
    base::FunctionRef<bool()> is_done,
    base::FunctionRef<bool(const engine::StepPlan& plan)> accepts) {
  constexpr std::chrono::microseconds kLook{20};  // nobody notifies when a device is done
  const auto is_there = [&] { return stopping_ || !plans_.empty(); };
  std::unique_lock lock(mutex_);
  while (!is_there() && !is_done()) changed_.wait_for(lock, kLook, is_there);
  if (stopping_ || plans_.empty() || !accepts(plans_.front())) return std::nullopt;
  return take();
}

void StepQueue::deliver(engine::StepResult result) {
  {
    std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
  }
  changed_.notify_all();
}

engine::StepPlan StepQueue::take() {
  engine::StepPlan plan = std::move(plans_.front());
  plans_.pop_front();
  return plan;
}

}  // namespace pelton::executor
