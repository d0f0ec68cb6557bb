#include "base/thread_pool.h"

#include <sys/resource.h>

#include <chrono>
#include <numeric>

#include <gtest/gtest.h>

namespace pelton::base {
namespace {

TEST(ThreadPool, EveryWorkerRunsOnce) {
  ThreadPool pool({.threads = 4});
  std::vector<int> seen(4, 0);
  for (int round = 0; round < 200; ++round) pool.run([&](int worker) { ++seen[worker]; });
  EXPECT_EQ(seen, std::vector<int>(4, 200));
}

TEST(ThreadPool, ParallelForCoversEachIndexOnce) {
  ThreadPool pool({.threads = 3});
  std::vector<int> hits(1001, 0);
  pool.parallel_for(1001, 7, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) ++hits[i];
  });
  EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 1001);
  EXPECT_EQ(*std::max_element(hits.begin(), hits.end()), 1);
}

TEST(ThreadPool, WakesAfterParking) {
  ThreadPool pool({.threads = 2, .spin_ns = 1000});
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> count{0};
    pool.run([&](int) { ++count; });
    ASSERT_EQ(count.load(), 2);
  }
}

TEST(ThreadPool, IdleUsesNoCpu) {
  ThreadPool pool({.threads = 4});
  pool.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto cpu_us = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_sec * 1'000'000 + usage.ru_stime.tv_usec;
  };
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu_us() - before, 5'000);  // one per cent
}

}  // namespace
}  // namespace pelton::base
