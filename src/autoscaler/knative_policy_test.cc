#include "autoscaler/knative_policy.h"

#include <gtest/gtest.h>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(KnativePolicyExample, TargetTenAtSeventyPercentAndTwentyFiveInFlightAreFour) {
  KnativePolicy policy({.target = 10 * 0.7});
  EXPECT_EQ(policy.desired(25, 25, 3, 0), 4);
}

TEST(KnativePolicyTest, DownToHalfAtOnceAtMost) {
  KnativePolicy policy({.target = 10});
  EXPECT_EQ(policy.desired(0, 0, 9, 0), 4);
  EXPECT_EQ(policy.desired(0, 0, 1, 0), 0);
}

TEST(KnativePolicyTest, APanicNeverGoesDownAndEndsAfterAQuietWindow) {
  KnativePolicy policy({.target = 10, .window_ns = 60 * kSecond});
  EXPECT_EQ(policy.desired(10, 50, 1, 0), 5);
  EXPECT_TRUE(policy.in_panic());
  EXPECT_EQ(policy.desired(20, 20, 5, 30 * kSecond), 5);
  EXPECT_EQ(policy.desired(20, 20, 5, 60 * kSecond), 5);
  EXPECT_EQ(policy.desired(20, 20, 5, 61 * kSecond), 2);
  EXPECT_FALSE(policy.in_panic());
}

TEST(KnativePolicyTest, APanicGoesOnWhileTheThresholdIsExceeded) {
  KnativePolicy policy({.target = 10, .window_ns = 60 * kSecond});
  EXPECT_EQ(policy.desired(10, 50, 1, 0), 5);
  EXPECT_EQ(policy.desired(100, 120, 5, 50 * kSecond), 12);
  EXPECT_EQ(policy.desired(0, 0, 12, 100 * kSecond), 12);
  EXPECT_EQ(policy.desired(0, 0, 12, 111 * kSecond), 6);
}

}  // namespace
}  // namespace pelton::autoscaler
