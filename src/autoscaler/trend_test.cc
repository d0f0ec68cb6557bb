#include "autoscaler/trend.h"

#include <gtest/gtest.h>

#include "autoscaler/sliding_max.h"
#include "autoscaler/start_times.h"

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(TrendExample, AClimbIsContinued) {
  Trend trend;
  for (int i = 0; i < 60; ++i) trend.note(2 + 0.1 * i, i * 5 * kSecond);
  ASSERT_TRUE(trend.ahead(60));
  EXPECT_NEAR(*trend.ahead(60), 2 + 5.9 + 1.2, 1e-6);
}

TEST(TrendTest, AtMostTwiceTheLoad) {
  Trend trend;
  for (int i = 0; i < 60; ++i) trend.note(0.1 * i, i * 5 * kSecond);
  EXPECT_NEAR(*trend.ahead(100'000), 2 * 5.9, 1e-6);
}

TEST(TrendTest, NoForecastOfNoiseOfFallsAndOfTheFirstMinute) {
  Trend noise;
  Trend fall;
  Trend young;
  for (int i = 0; i < 60; ++i) {
    noise.note(i % 2 == 0 ? 5 : 6, i * 5 * kSecond);
    fall.note(20 - 0.1 * i, i * 5 * kSecond);
    if (i < 11) young.note(i, i * 5 * kSecond);
  }
  EXPECT_FALSE(noise.ahead(60));
  EXPECT_FALSE(fall.ahead(60));
  EXPECT_FALSE(young.ahead(60));
}

TEST(SlidingMaxExample, TheGreatestOfAWindow) {
  SlidingMax greatest;
  EXPECT_EQ(greatest.note(5, 0, 10), 5);
  EXPECT_EQ(greatest.note(3, 1, 10), 5);
  EXPECT_EQ(greatest.note(4, 2, 10), 5);
  EXPECT_EQ(greatest.note(1, 10, 10), 4);
  EXPECT_EQ(greatest.note(1, 12, 10), 1);
}

TEST(StartTimesTest, PercentilesOfTheLastTwenty) {
  StartTimes starts;
  EXPECT_EQ(starts.percentile(0.9, 30), 30);
  for (int i = 1; i <= 30; ++i) starts.note(i);
  EXPECT_EQ(starts.percentile(0.5, 30), 20);
  EXPECT_EQ(starts.percentile(0.9, 30), 28);
  starts.note(-1);
  EXPECT_EQ(starts.percentile(1, 30), 30);
}

}  // namespace
}  // namespace pelton::autoscaler
