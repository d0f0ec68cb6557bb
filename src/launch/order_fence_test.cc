#include "launch/order_fence.h"

#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;

TEST(OrderFenceTest, TheNewestThatSpeaksIsObeyed) {
  OrderFence fence;
  EXPECT_TRUE(fence.takes(10, kSecond_ns));
  EXPECT_TRUE(fence.takes(11, 2 * kSecond_ns));
  EXPECT_FALSE(fence.takes(10, 12 * kSecond_ns)) << "it spoke ten seconds ago";
  EXPECT_TRUE(fence.takes(11, 12 * kSecond_ns));
  EXPECT_FALSE(fence.takes(10, 13 * kSecond_ns));
  EXPECT_EQ(fence.newest(), 11u);
}

// It began while a clock was an hour ahead, and is gone.
TEST(OrderFenceTest, OneThatIsSilentKeepsNobodyOut) {
  OrderFence fence;
  EXPECT_TRUE(fence.takes(3'600'000, kSecond_ns));
  EXPECT_FALSE(fence.takes(5, 11 * kSecond_ns));
  EXPECT_TRUE(fence.takes(5, 11 * kSecond_ns + 1));
  EXPECT_EQ(fence.newest(), 5u);
}

TEST(OrderFenceTest, OneThatNobodyCanHaveIsAhead) {
  constexpr int64_t kNow_ms = 1'800'000'000'000;
  constexpr uint64_t kLast = kNow_ms + OrderFence::kAhead_ms;
  for (const uint64_t begin : {uint64_t{0}, OrderFence::kLed}) {
    EXPECT_FALSE(OrderFence::is_ahead(begin + 5, kNow_ms));
    EXPECT_FALSE(OrderFence::is_ahead(begin + kLast, kNow_ms));
    EXPECT_TRUE(OrderFence::is_ahead(begin + kLast + 1, kNow_ms));
  }
  EXPECT_TRUE(OrderFence::is_ahead(uint64_t{1} << 50, kNow_ms));
  EXPECT_TRUE(OrderFence::is_ahead(INT64_MAX, kNow_ms));
}

TEST(OrderFenceTest, OneThatLedFencesForEver) {
  OrderFence fence;
  EXPECT_TRUE(fence.takes(OrderFence::kLed + 7, kSecond_ns));
  EXPECT_FALSE(fence.takes(OrderFence::kLed + 6, 1000 * kSecond_ns));
  EXPECT_FALSE(fence.takes(900, 1000 * kSecond_ns));
  EXPECT_TRUE(fence.takes(OrderFence::kLed + 8, 1000 * kSecond_ns));
}

}  // namespace
}  // namespace pelton::launch
