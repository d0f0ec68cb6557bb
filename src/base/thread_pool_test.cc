#include "base/thread_pool.h"

#include <chrono>
#include <numeric>

#include <gtest/gtest.h>
#include <sys/resource.h>

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

TEST(ThreadPool, WhoIsDoneTakesOverWhatAnotherHasLeft) {
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool({.threads = threads, .pin = false});
    constexpr int64_t kPieces = 100;
    std::vector<std::atomic<int>> hits(kPieces);
    std::atomic<int64_t> done{0};
    // One worker stays in its first piece until all others' pieces and all of its own others are
    // done.
    std::atomic<bool> is_held{false};
    pool.parallel_for(kPieces * 3 - 1, 3, [&](int64_t begin, int64_t end, int) {
      ++hits[static_cast<size_t>(begin / 3)];
      EXPECT_EQ(end, std::min<int64_t>(begin + 3, kPieces * 3 - 1));
      if (!is_held.exchange(true)) {
        const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (done.load() < kPieces - 1 && std::chrono::steady_clock::now() < late) {
          std::this_thread::yield();
        }
        EXPECT_EQ(done.load(), kPieces - 1) << "nobody took what it had left";
      }
      ++done;
    });
    for (const std::atomic<int>& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
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

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// A pool that has gone leaves no trace: the next one has as many workers, and they run where they
// would have run.
TEST(ThreadPool, A1_ThreadHasItsAffinityBackAfterAPool) {
  const std::vector<int> before = cpus_of_this_thread();
  if (before.size() < 2) GTEST_SKIP() << "one processor";
  int size_before = 0;
  for (int round = 0; round < 2; ++round) {
    {
      ThreadPool pool({});
      const ThreadPool::PinnedCaller pinned = pool.adopt_caller();
      EXPECT_EQ(cpus_of_this_thread().size(), 1u);
      if (round == 0) size_before = pool.size();
      EXPECT_EQ(pool.size(), size_before);
    }
    EXPECT_EQ(cpus_of_this_thread(), before);
    std::vector<int> of_new_thread;
    std::thread([&] { of_new_thread = cpus_of_this_thread(); }).join();
    EXPECT_EQ(of_new_thread, before);
  }
  // More workers than processors: nobody is pinned, so nothing is to be given back.
  ThreadPool crowd({.threads = static_cast<int>(before.size()) + 1});
  const ThreadPool::PinnedCaller not_pinned = crowd.adopt_caller();
  EXPECT_EQ(cpus_of_this_thread(), before);
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
