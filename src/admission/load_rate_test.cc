#include "admission/load_rate.h"

#include <gtest/gtest.h>

namespace pelton::admission {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(LoadRate, a_burst_at_once_and_then_so_many_a_second) {
  LoadRate rate(4, 2, 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(rate.wait_ns(0), 0);
    rate.take();
  }
  const int64_t wait_ns = rate.wait_ns(0);
  EXPECT_NEAR(static_cast<double>(wait_ns), kSecond / 4.0, 2);
  EXPECT_GT(rate.wait_ns(kSecond / 8), 0);
  EXPECT_EQ(rate.wait_ns(wait_ns), 0);
  rate.take();
  // What is not used is kept up to the burst.
  EXPECT_EQ(rate.wait_ns(100 * kSecond), 0);
  rate.take();
  EXPECT_EQ(rate.wait_ns(100 * kSecond), 0);
  rate.take();
  EXPECT_GT(rate.wait_ns(100 * kSecond), 0);
}

TEST(LoadRate, without_a_rate_nobody_waits) {
  LoadRate rate(0, 1, 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(rate.wait_ns(0), 0);
    rate.take();
  }
}

}  // namespace
}  // namespace pelton::admission
