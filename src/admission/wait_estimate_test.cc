#include "admission/wait_estimate.h"

#include <gtest/gtest.h>

namespace pelton::admission {
namespace {

using Places = WaitEstimate::Places;
constexpr int64_t kSecond = 1'000'000'000;

TEST(WaitEstimate, says_nothing_before_it_has_seen_enough) {
  WaitEstimate estimate;
  EXPECT_EQ(estimate.wait_ns(1000, 0), 0);
  EXPECT_EQ(estimate.service_ns(1000, 1000), 0);
  estimate.places_are(Places::kTaken, 0);
  for (int i = 1; i <= 3; ++i) estimate.place_freed(i * kSecond);
  EXPECT_EQ(estimate.wait_ns(1000, 3 * kSecond), 0);
}

TEST(WaitEstimate, places_come_free_at_a_rate_while_somebody_waits) {
  WaitEstimate estimate;
  estimate.places_are(Places::kTaken, 0);
  int64_t now = 0;
  for (int i = 0; i < 100; ++i) estimate.place_freed(now += kSecond / 2);
  EXPECT_NEAR(static_cast<double>(estimate.wait_ns(10, now)), 5e9, 0.1e9);
  // Nobody comes for an hour: that is no sign of being slow.
  estimate.places_are(Places::kFree, now);
  estimate.place_freed(now += 3600 * kSecond);
  estimate.places_are(Places::kTaken, now);
  EXPECT_NEAR(static_cast<double>(estimate.wait_ns(10, now)), 5e9, 0.1e9);
  // Twice as fast from now on.
  for (int i = 0; i < 64; ++i) estimate.place_freed(now += kSecond / 4);
  EXPECT_NEAR(static_cast<double>(estimate.wait_ns(10, now)), 2.5e9, 0.1e9);
  // Nothing comes free any more.
  now += 64 * kSecond;
  EXPECT_GT(estimate.wait_ns(10, now), 10 * kSecond);
}

TEST(WaitEstimate, service_is_by_tokens) {
  WaitEstimate estimate;
  for (int i = 0; i < 50; ++i) {
    estimate.served({.prompt_tokens = 100,
                     .prefill_ns = kSecond,
                     .output_tokens = 21,
                     .decode_ns = 4 * kSecond});
  }
  EXPECT_NEAR(static_cast<double>(estimate.first_token_ns(200)), 2e9, 1e6);
  EXPECT_NEAR(static_cast<double>(estimate.service_ns(100, 1000)), 5e9, 1e6);
  EXPECT_NEAR(static_cast<double>(estimate.service_ns(100, 6)), 2e9, 1e6);
  EXPECT_EQ(estimate.output_tokens(1000), 21);
  EXPECT_EQ(estimate.output_tokens(5), 5);
}

}  // namespace
}  // namespace pelton::admission
