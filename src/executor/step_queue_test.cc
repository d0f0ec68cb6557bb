#include "executor/step_queue.h"

#include <thread>

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

engine::StepPlan plan_of(int64_t step) {
  engine::StepPlan plan;
  plan.step = step;
  return plan;
}

engine::StepResult result_of(int64_t step) {
  engine::StepResult result;
  result.step = step;
  return result;
}

TEST(StepQueue, StepsComeBackInOrder) {
  StepQueue queue;
  std::thread executor([&] {
    while (std::optional<engine::StepPlan> plan = queue.wait()) {
      queue.deliver(result_of(plan->step));
    }
  });
  queue.submit(plan_of(0));
  for (int64_t step = 1; step < 1000; ++step) {
    queue.submit(plan_of(step));
    EXPECT_EQ(queue.collect().step, step - 1);
  }
  EXPECT_EQ(queue.collect().step, 999);
  queue.stop();
  executor.join();
}

// Delivered and not collected is still in flight: nothing piles up.
TEST(StepQueueDeathTest, AThirdStepIsABug) {
  StepQueue queue;
  queue.submit(plan_of(0));
  queue.deliver(result_of(queue.wait()->step));
  queue.submit(plan_of(1));
  EXPECT_DEATH(queue.submit(plan_of(2)), "at most two steps");
}

TEST(StepQueue, APlanThatIsNotAcceptedStays) {
  StepQueue queue;
  const auto never = [] { return false; };
  queue.submit(plan_of(7));
  EXPECT_FALSE(queue.take_early(never, [](const engine::StepPlan&) { return false; }));
  const auto taken = queue.take_early(never, [](const auto& plan) { return plan.step == 7; });
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->step, 7);
}

TEST(StepQueue, WaitsForThePlanBehindOnlyWhileTheStepRuns) {
  StepQueue queue;
  int looked = 0;
  const auto yes = [](const engine::StepPlan&) { return true; };
  EXPECT_FALSE(queue.take_early([&] { return ++looked == 3; }, yes));
  EXPECT_EQ(looked, 3);
  std::thread engine([&] { queue.submit(plan_of(1)); });
  EXPECT_TRUE(queue.take_early([] { return false; }, yes));
  engine.join();
}

TEST(StepQueue, StoppedItGivesNoPlan) {
  StepQueue queue;
  queue.submit(plan_of(0));
  std::thread stopper([&] { queue.stop(); });
  stopper.join();
  EXPECT_FALSE(queue.wait());
  EXPECT_FALSE(queue.take_early([] { return false; }, [](const auto&) { return true; }));
}

}  // namespace
}  // namespace pelton::executor
