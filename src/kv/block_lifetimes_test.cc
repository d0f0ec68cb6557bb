#include "kv/block_lifetimes.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kv/block_pool.h"

namespace pelton::kv {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t count(const BlockTimes::Histogram& spread) {
  return std::accumulate(spread.counts.begin(), spread.counts.end(), int64_t{0});
}

TEST(BlockLifetimes, tells_how_old_idle_and_asked_for_blocks_are) {
  base::VirtualClock clock;
  clock.advance_ns(7 * kSecond);
  BlockPool pool({.block_count = 1, .block_tokens = 4, .clock = &clock});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(1, taken));
  pool.cache(taken[0], {1, 1}, BlockPool::EvictionPriority::kFirst);
  clock.advance_ns(10 * kSecond);
  pool.give_back(taken);
  for (const int64_t gap_s : {5, 3, 4}) {  // found three times
    clock.advance_ns(gap_s * kSecond);
    pool.share(pool.find({1, 1}));
    pool.give_back(taken);
  }
  EXPECT_EQ(count(pool.times().lifetime), 0);
  clock.advance_ns(6 * kSecond);
  std::vector<BlockId> again;
  ASSERT_TRUE(pool.take(1, again));  // for which it is forgotten
  const BlockTimes& times = pool.times();
  EXPECT_EQ(count(times.lifetime), 1);
  EXPECT_NEAR(times.lifetime.sum_s, 28, 1e-9);
  EXPECT_EQ(times.lifetime.counts[14], 1);  // at most 30 s
  EXPECT_EQ(count(times.idle), 1);
  EXPECT_NEAR(times.idle.sum_s, 6, 1e-9);
  EXPECT_EQ(count(times.reuse_gap), 2);
  EXPECT_NEAR(times.reuse_gap.sum_s, 7, 1e-9);
  // What nobody can find again is not evicted, and a new life begins with each taking.
  clock.advance_ns(100 * kSecond);
  pool.give_back(again);
  ASSERT_TRUE(pool.take(1, again));
  EXPECT_EQ(count(pool.times().lifetime), 1);
}

TEST(BlockLifetimes, sees_a_thousand_of_a_large_pool) {
  constexpr int kBlocks = 40'000;
  base::VirtualClock clock;
  BlockPool pool({.block_count = kBlocks, .block_tokens = 4, .clock = &clock});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(kBlocks, taken));
  for (size_t i = 0; i < taken.size(); ++i) {
    pool.cache(taken[i], {i, 1}, BlockPool::EvictionPriority::kFirst);
  }
  pool.give_back(taken);
  taken.clear();
  ASSERT_TRUE(pool.take(kBlocks, taken));
  EXPECT_GE(count(pool.times().lifetime), 1024);
  EXPECT_LE(count(pool.times().lifetime), 2048);
}

TEST(BlockLifetimes, sees_nothing_without_a_clock) {
  BlockPool pool({.block_count = 1, .block_tokens = 4});
  std::vector<BlockId> taken;
  ASSERT_TRUE(pool.take(1, taken));
  pool.cache(taken[0], {1, 1}, BlockPool::EvictionPriority::kFirst);
  pool.give_back(taken);
  ASSERT_TRUE(pool.take(1, taken));
  EXPECT_EQ(count(pool.times().lifetime), 0);
}

}  // namespace
}  // namespace pelton::kv
