#include "eval/statistics.h"

#include <vector>

#include <gtest/gtest.h>

namespace pelton::eval {
namespace {

TEST(Statistics, wilson_interval_is_the_published_one) {
  // Wilson's own form, by hand: 8 of 10.
  const Interval interval = wilson_interval(8, 10);
  EXPECT_NEAR(interval.low, 0.4901625, 1e-6);
  EXPECT_NEAR(interval.high, 0.9433178, 1e-6);
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
  EXPECT_EQ(wilson_interval(0, 20).low, 0);
  EXPECT_NEAR(wilson_interval(0, 20).high, 0.1611252, 1e-6);
  EXPECT_EQ(wilson_interval(20, 20).high, 1);
}

TEST(Statistics, mcnemar_is_exact) {
  EXPECT_NEAR(mcnemar_p(1, 8), 0.0390625, 1e-12);
  EXPECT_NEAR(mcnemar_p(8, 1), 0.0390625, 1e-12);
  EXPECT_EQ(mcnemar_p(0, 0), 1);
  EXPECT_EQ(mcnemar_p(5, 5), 1);
  EXPECT_NEAR(mcnemar_p(0, 10), 2.0 / 1024, 1e-12);
  EXPECT_LT(mcnemar_p(100, 300), 1e-20);
}

TEST(Statistics, bootstrap_contains_the_mean_and_is_repeatable) {
  std::vector<double> differences(200, 0.0);
  for (int i = 0; i < 30; ++i) differences[i] = -1;
  const Interval interval = bootstrap_interval(differences, 1, 2000);
  EXPECT_LT(interval.low, -0.15);
  EXPECT_GT(interval.high, -0.15);
  // Of a binomial of 200 with p = 0.15: standard deviation 0.0252.
  EXPECT_NEAR(interval.low, -0.2, 0.012);
  EXPECT_NEAR(interval.high, -0.1, 0.012);
  const Interval again = bootstrap_interval(differences, 1, 2000);
  EXPECT_EQ(again.low, interval.low);
  EXPECT_EQ(again.high, interval.high);
  EXPECT_EQ(bootstrap_interval({}, 1, 10).high, 0);
}

}  // namespace
}  // namespace pelton::eval
