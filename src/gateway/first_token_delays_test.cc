#include "gateway/first_token_delays.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(FirstTokenDelays, ItsMiddleIsOfTheLastTenSeconds) {
  FirstTokenDelays delays;
  EXPECT_EQ(delays.middle(kSecond).requests, 0);
  for (int i = 0; i < 20; ++i) delays.note(i < 11 ? 0.1 : 1.0, 0.1, (100 + i) * kSecond / 10);
  FirstTokenDelays::Middle middle = delays.middle(13 * kSecond);
  EXPECT_EQ(middle.requests, 20);
  EXPECT_NEAR(middle.ratio, 1, 1e-9) << "eleven of twenty were in time";
  delays.note(1.0, 0.1, 13 * kSecond);
  delays.note(1.0, 0.1, 13 * kSecond);
  middle = delays.middle(13 * kSecond);
  EXPECT_EQ(middle.requests, 20);
  EXPECT_NEAR(middle.ratio, 10, 1e-9) << "eleven of the last twenty were late";
  EXPECT_NEAR(middle.measured_s, 1.0, 1e-9);
  EXPECT_EQ(delays.middle(21 * kSecond).requests, 12) << "those of the eleventh second are over";
}

TEST(FirstTokenDelays, HoldsTheLastTwentyAndNoNonsense) {
  FirstTokenDelays delays;
  delays.note(0, 0.1, kSecond);
  delays.note(0.1, 0, kSecond);
  EXPECT_EQ(delays.middle(kSecond).requests, 0);
  for (int i = 0; i < 1000; ++i) delays.note(0.2, 0.1, kSecond);
  EXPECT_EQ(delays.middle(kSecond).requests, 20);
  delays.clear();
  EXPECT_EQ(delays.middle(kSecond).requests, 0);
}

}  // namespace
}  // namespace pelton::gateway
