#include "gateway/sequential_evidence.h"

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

double product(const OddsTest& test, size_t bet) {
  return std::exp(test.evidence().log_products[bet]);
}

// The header's example.
TEST(OddsTest, PaysAsItsExampleSays) {
  constexpr size_t kFive = 3;
  static_assert(OddsTest::kRatios[kFive] == 5);
  OddsTest candidate_failed(0);
  for (int i = 0; i < 63; ++i) candidate_failed.note(ArmSide::kOthers, false);
  EXPECT_TRUE(candidate_failed.note(ArmSide::kCandidate, true));
  EXPECT_NEAR(product(candidate_failed, kFive), (5.0 / 68) / (1.0 / 64), 1e-9);
  OddsTest other_failed(0);
  for (int i = 0; i < 63; ++i) other_failed.note(ArmSide::kOthers, i == 7);
  other_failed.note(ArmSide::kCandidate, false);
  EXPECT_NEAR(product(other_failed, kFive), (1.0 / 68) / (1.0 / 64), 1e-9);
}

// Over all ways in which a block's failures may lie, as likely as they are, each bet pays 1.
TEST(OddsTest, IsFairWhateverTheBlock) {
  constexpr int kCandidate = 6;
  constexpr int kOthers = static_cast<int>(OddsTest::kBlock) - kCandidate;
  const auto choose = [](int of, int count) {
    double ways = 1;
    for (int i = 0; i < count; ++i) ways = ways * (of - i) / (i + 1);
    return ways;
  };
  for (const int failed : {1, 3, 6, 20, 61, 64}) {
    std::vector<double> mean(OddsTest::kRatios.size());
    double all = 0;
    for (int its = std::max(0, failed - kOthers); its <= std::min(kCandidate, failed); ++its) {
      OddsTest test(0);
      for (int i = 0; i < kCandidate; ++i) test.note(ArmSide::kCandidate, i < its);
      for (int i = 0; i < kOthers; ++i) test.note(ArmSide::kOthers, i < failed - its);
      const double ways = choose(kCandidate, its) * choose(kOthers, failed - its);
      all += ways;
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += ways * product(test, i);
    }
    for (size_t i = 0; i < mean.size(); ++i) {
      EXPECT_NEAR(mean[i] / all, 1, 1e-9) << failed << " " << OddsTest::kRatios[i];
    }
  }
}

TEST(OddsTest, WhatIsToleratedIsNoEvidence) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit;
  OddsTest tolerant(1);  // twice as many
  OddsTest strict(0);
  for (int i = 0; i < 200'000; ++i) {
    const bool is_candidate = unit(random) < 0.2;
    const bool failed = unit(random) < (is_candidate ? 0.018 : 0.01);
    const ArmSide side = is_candidate ? ArmSide::kCandidate : ArmSide::kOthers;
    tolerant.note(side, failed);
    strict.note(side, failed);
  }
  EXPECT_LT(tolerant.evidence().log_evidence(), 0);
  EXPECT_GT(strict.evidence().log_evidence(), 10);
}

TEST(OddsTest, HugeBlocksOfFailuresStayFinite) {
  OddsTest test(0);
  for (int i = 0; i < 100'000; ++i) test.note(ArmSide::kOthers, true);
  test.note(ArmSide::kCandidate, true);
  for (int i = 0; i < 100'000; ++i) test.note(ArmSide::kCandidate, i % 2 == 0);
  for (int i = 0; i < 50; ++i) test.note(ArmSide::kOthers, i % 3 == 0);
  for (const double one : test.evidence().log_products) EXPECT_TRUE(std::isfinite(one));
}

TEST(ChanceInterval, HoldsTheChanceAtEveryLook) {
  const int runs = std::getenv("PELTON_FULL") != nullptr ? 4000 : 400;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit;
  int wrong = 0;
  for (int run = 0; run < runs; ++run) {
    const double chance = run % 2 == 0 ? 0.01 : 0.3;
    int failed = 0;
    bool is_wrong = false;
    for (int i = 1; i <= 400; ++i) {
      failed += unit(random) < chance ? 1 : 0;
      const Interval of = chance_interval(failed, i, 0.05);
      is_wrong = is_wrong || chance < of.low || chance > of.high;
    }
    wrong += is_wrong ? 1 : 0;
  }
  EXPECT_LE(wrong, runs / 20 + 3 * std::sqrt(runs * 0.05));
  const Interval none = chance_interval(0, 0, 0.05);
  EXPECT_EQ(none, (Interval{.low = 0, .high = 1}));
  const Interval all = chance_interval(50, 50, 0.05);
  EXPECT_EQ(all.high, 1);
  EXPECT_GT(all.low, 0.8);
  EXPECT_LT(chance_interval(0, 1000, 0.05).high, 0.011);
}

RankTest played(double factor, double tolerance, double share, int requests, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit;
  std::normal_distribution<double> normal;
  RankTest test(tolerance, RankTest::Grid::kKept);
  for (int i = 0; i < requests; ++i) {
    const bool is_candidate = unit(random) < share;
    const double value = std::exp(0.5 * normal(random)) * (is_candidate ? factor : 1);
    test.note(is_candidate ? ArmSide::kCandidate : ArmSide::kOthers, value);
  }
  return test;
}

TEST(RankTest, FindsTheFactorBetweenTheArms) {
  for (const double factor : {0.5, 1.0, 1.3, 2.0}) {
    const RankTest test = played(factor, 0, 0.05, 20'000, 11);
    const RankTest::Ratio ratio = RankTest::ratio(test.evidence(), 0.05);
    EXPECT_LE(ratio.interval.low, factor * 1.001);  // a factor may be none of the grid's
    EXPECT_GE(ratio.interval.high, factor * 0.95);
    EXPECT_NEAR(ratio.estimate / factor, 1, 0.1);
    EXPECT_LT(ratio.interval.high / ratio.interval.low, 1.5);
    const double larger = mixed_log_evidence(test.evidence().at_tolerance.larger);
    const double smaller = mixed_log_evidence(test.evidence().at_tolerance.smaller);
    EXPECT_EQ(larger > std::log(1000), factor > 1.1) << factor;
    EXPECT_EQ(smaller > std::log(1000), factor < 0.9) << factor;
  }
}

// Over all ways in which the labels may lie, each bet pays 1, whatever the values are; also where
// they are equal, and grow with time.
TEST(RankTest, IsFairWhateverTheBlock) {
  std::mt19937_64 random(9);
  for (const bool is_tied : {false, true}) {
    std::vector<double> values;
    for (size_t i = 0; i < RankTest::kBlock; ++i) {
      values.push_back(1 + (is_tied ? static_cast<double>(i / 9) : static_cast<double>(i)));
    }
    for (const double share : {0.06, 0.3, 0.9}) {
      std::uniform_real_distribution<double> unit;
      RankTest::Products mean{};
      constexpr int kRuns = 20'000;
      for (int run = 0; run < kRuns; ++run) {
        RankTest test(0, RankTest::Grid::kNone);
        // Each block's order is drawn by how many values there have been.
        RankTest::Evidence before;
        before.values.others = run;
        test.set_evidence(before);
        for (const double value : values) {
          test.note(unit(random) < share ? ArmSide::kCandidate : ArmSide::kOthers, value);
        }
        const RankTest::Products& all = test.evidence().at_tolerance.larger;
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += std::exp(all[i]) / kRuns;
      }
      EXPECT_NEAR(mean[0], 1, 0.02) << share;
      EXPECT_NEAR(mean[1], 1, 0.08) << share;
    }
  }
}

TEST(RankTest, MajoritiesAreTakenAsMinorities) {
  const RankTest test = played(1.5, 0.1, 0.95, 4000, 12);
  EXPECT_GT(mixed_log_evidence(test.evidence().at_tolerance.larger), std::log(1000));
  EXPECT_LT(mixed_log_evidence(test.evidence().at_tolerance.smaller), 0);
}

TEST(RankTest, EqualValuesSayNothing) {
  RankTest test(0, RankTest::Grid::kNone);
  for (int i = 0; i < 1000; ++i) {
    test.note(i % 7 == 0 ? ArmSide::kCandidate : ArmSide::kOthers, 100);
  }
  EXPECT_EQ(mixed_log_evidence(test.evidence().at_tolerance.larger), 0);
  EXPECT_EQ(mixed_log_evidence(test.evidence().at_tolerance.smaller), 0);
}

TEST(RankTest, AnIntervalHoldsTheFactorAtEveryLook) {
  const int runs = std::getenv("PELTON_FULL") != nullptr ? 1000 : 60;
  int wrong = 0;
  for (int run = 0; run < runs; ++run) {
    const RankTest test = played(1.3, 0.1, 0.1, 3000, 100 + static_cast<uint64_t>(run));
    const Interval of = RankTest::ratio(test.evidence(), 0.05).interval;
    wrong += 1.3 < of.low || 1.3 > of.high ? 1 : 0;
  }
  EXPECT_LE(wrong, runs / 20 + 3);
}

}  // namespace
}  // namespace pelton::gateway
