#include "parallel/share.h"

#include <random>

#include <gtest/gtest.h>

#include "parallel/processors.h"
#include "parallel/silence.h"

namespace pelton::parallel {
namespace {

TEST(Share, TheExampleOfTheHeader) {
  const Share share = Share::make(192, 32, {1, 1, 1, 1});
  EXPECT_EQ(share.begin(1), 32);
  EXPECT_EQ(share.begin(2), 96);
  EXPECT_EQ(share.begin(3), 128);
  EXPECT_EQ(share.count(3), 64);
  EXPECT_EQ(share.widest(), 64);
}

TEST(Share, ARankMayHaveNone) {
  const Share heads = Share::make(2, 1, {1, 1, 1});
  EXPECT_EQ(heads.count(0) + heads.count(1) + heads.count(2), 2);
  EXPECT_EQ(heads.count(0), 0);
}

TEST(Share, WholeUnitsButForTheLast) {
  std::mt19937 random(std::random_device{}());
  for (int turn = 0; turn < 1000; ++turn) {
    const int unit = 1 + static_cast<int>(random() % 40);
    const int rows = 1 + static_cast<int>(random() % 500);
    std::vector<int> weights(1 + random() % 8);
    for (int& weight : weights) weight = 1 + static_cast<int>(random() % 5);
    const Share share = Share::make(rows, unit, weights);
    int sum = 0;
    for (int rank = 0; rank < share.ranks(); ++rank) {
      EXPECT_EQ(share.begin(rank), sum);
      EXPECT_TRUE(share.begin(rank) % unit == 0 || share.begin(rank) == rows);
      EXPECT_LE(share.count(rank), share.widest());
      sum += share.count(rank);
    }
    EXPECT_EQ(sum, rows);
  }
}

TEST(Silence, TimeInWhichTheLookerDidNotRunIsNotTheOthers) {
  constexpr int64_t kSecond = 1'000'000'000;
  Silence silence(0);
  silence.look(kSecond / 2, false);
  silence.look(kSecond, false);
  silence.look(9 * kSecond, false);
  EXPECT_EQ(silence.ns(), 2 * kSecond);
  silence.look(10 * kSecond, true);
  EXPECT_EQ(silence.ns(), 0);
}

TEST(Processors, NeighboursForEachRankOrOneThatSeveralShare) {
  const auto shares = share_processors({0, 1, 2, 5, 6}, 2);
  EXPECT_EQ(shares[0], (std::vector<int>{0, 1}));
  EXPECT_EQ(shares[1], (std::vector<int>{2, 5, 6}));
  EXPECT_GT(spin_ns_for(shares), 0);
  const auto few = share_processors({0, 1}, 3);
  EXPECT_EQ(few, (std::vector<std::vector<int>>{{0}, {1}, {0}}));
  EXPECT_EQ(spin_ns_for(few), 0);
}

}  // namespace
}  // namespace pelton::parallel
