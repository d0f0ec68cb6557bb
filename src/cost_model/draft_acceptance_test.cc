#include "cost_model/draft_acceptance.h"

#include <cmath>

#include <gtest/gtest.h>

namespace pelton::cost_model {
namespace {

TEST(DraftAcceptance, OneShareIsOfEveryToken) {
  const DraftAcceptance one = *DraftAcceptance::parse("0.7");
  EXPECT_TRUE(one.is_plain());
  EXPECT_EQ(one.at(1, 0), 0.7);
  EXPECT_EQ(one.at(2, 5), 0.7);
  EXPECT_EQ(one.survival(3), 0.7 * 0.7 * 0.7);
}

TEST(DraftAcceptance, SharesByPlaceEndWithTheLast) {
  const DraftAcceptance one = *DraftAcceptance::parse("0.9,0.5");
  EXPECT_FALSE(one.is_plain());
  EXPECT_EQ(one.at(1, 0), 0.9);
  EXPECT_EQ(one.at(1, 1), 0.5);
  EXPECT_EQ(one.at(1, 7), 0.5);
  EXPECT_DOUBLE_EQ(one.survival(3), 0.9 * 0.5 * 0.5);
}

// A request keeps its share; over many requests moments are the distribution's.
TEST(DraftAcceptance, BetaAndMixturesAreDrawnForEachRequest) {
  for (const char* const text : {"beta:5:2", "beta:0.5:0.5", "0.3*0.95+0.7*beta:2:5"}) {
    const DraftAcceptance one = *DraftAcceptance::parse(text);
    constexpr int kRequests = 20'000;
    double first = 0;
    double three = 0;
    for (int i = 0; i < kRequests; ++i) {
      const double share = one.at(static_cast<uint64_t>(i), 0);
      ASSERT_EQ(share, one.at(static_cast<uint64_t>(i), 3));
      ASSERT_GE(share, 0);
      ASSERT_LE(share, 1);
      first += share;
      three += share * share * share;
    }
    EXPECT_NEAR(first / kRequests, one.mean(), 0.01) << text;
    EXPECT_NEAR(three / kRequests, one.survival(3), 0.01) << text;
    // Uneven requests accept longer runs than the mean one.
    EXPECT_GT(one.survival(3), std::pow(one.mean(), 3)) << text;
  }
}

TEST(DraftAcceptance, WhatIsNoneIsRefused) {
  for (const char* const text :
       {"", "1.1", "-0.1", "nan", "0.5,", "beta:2", "beta:0:1", "beta:1:nan", "0.5*0.9",
        "0.5*0.9+0.6*0.1", "0*0.5+1*0.5", "x", "0.9;0.8", "+", "inf*0.5"}) {
    EXPECT_FALSE(DraftAcceptance::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pelton::cost_model
