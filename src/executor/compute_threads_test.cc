#include "executor/compute_threads.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

// Two that compute all the time never do so at once, and take turns: between two steps of one the
// other has had its own, as soon as it waits.
TEST(ComputeThreads, StepsTakeTurns) {
  ComputeThreads threads(3);
  std::atomic<int> inside = 0;
  std::atomic<int64_t> sum = 0;
  std::vector<int> order;
  const auto compute = [&](int who) {
    for (int step = 0; step < 200; ++step) {
      const ComputeThreads::Turn turn = threads.take_turn();
      EXPECT_EQ(inside++, 0);
      threads.pool().parallel_for(64, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) sum += i;
      });
      order.push_back(who);
      --inside;
    }
  };
  std::thread first(compute, 1);
  std::thread second(compute, 2);
  first.join();
  second.join();
  EXPECT_EQ(sum, 2 * 200 * (63 * 64 / 2));
  EXPECT_EQ(order.size(), 400u);
}

TEST(ComputeThreads, WhoWaitsLongestIsNext) {
  ComputeThreads threads(1);
  std::vector<int> order;
  std::optional<std::thread> waiting[3];
  {
    const ComputeThreads::Turn turn = threads.take_turn();
    std::atomic<int> asked = 0;
    for (int who = 0; who < 3; ++who) {
      waiting[who].emplace([&, who] {
        ++asked;
        const ComputeThreads::Turn own = threads.take_turn();
        order.push_back(who);
      });
      while (asked <= who) std::this_thread::yield();
      // It says so a moment before it has asked.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(order.empty());
  }
  for (std::optional<std::thread>& one : waiting) one->join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

using Work = ComputeThreads::Work;

void hold(ComputeThreads& threads, Work work, int ms) {
  const ComputeThreads::Turn turn = threads.take_turn(work);
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// A quarter for encoders: behind a step of 20 ms models that generate have 60 ms.
TEST(ComputeThreads, AnEncoderHasItsShare) {
  ComputeThreads threads(1);
  threads.set_encoding_share(0.25);
  std::atomic<bool> over = false;
  std::atomic<int> generated = 0;
  std::thread generating([&] {
    while (!over) {
      hold(threads, Work::kGenerates, 5);
      ++generated;
    }
  });
  while (generated == 0) std::this_thread::yield();
  constexpr int kSteps = 8;
  hold(threads, Work::kEncodes, 20);
  const int before = generated;
  for (int step = 0; step < kSteps; ++step) hold(threads, Work::kEncodes, 20);
  const int turns = generated - before;
  over = true;
  generating.join();
  // Steps may take longer than they sleep, both alike.
  EXPECT_GE(turns, kSteps * 6);
  EXPECT_LE(turns, kSteps * 26);
}

// Nobody generates: nothing is kept for them.
TEST(ComputeThreads, AnEncoderAloneHasAll) {
  ComputeThreads threads(1);
  threads.set_encoding_share(0.01);
  hold(threads, Work::kGenerates, 1);
  const auto begun = std::chrono::steady_clock::now();
  for (int step = 0; step < 10; ++step) hold(threads, Work::kEncodes, 10);
  // By its share alone a single step would owe a second.
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(1));
}

}  // namespace
}  // namespace pelton::executor
