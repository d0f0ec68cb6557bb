#include "report/confidence.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

namespace pelton::report {
namespace {

TEST(Confidence, ThreeValuesHaveStudentsInterval) {
  const std::array<double, 3> values = {1, 2, 3};
  const Interval interval = mean_interval(values);
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_NEAR(interval.high, 2 + 4.303 / std::sqrt(3.0), 1e-9);
  EXPECT_NEAR(interval.low, 2 - 4.303 / std::sqrt(3.0), 1e-9);
}

TEST(Confidence, OneValueHasNoBounds) {
  const std::array<double, 1> values = {7};
  EXPECT_FALSE(mean_interval(values).has_bounds);
  EXPECT_DOUBLE_EQ(mean_interval(values).low, 7);
}

}  // namespace
}  // namespace pelton::report
