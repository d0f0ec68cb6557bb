#include "simulator/start_fetches.h"

#include <gtest/gtest.h>

namespace pelton::simulator {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

double end_of(StartFetches& fetches, int replica, double now_s) {
  for (const StartFetches::End& one : fetches.ends(static_cast<int64_t>(now_s * 1e9))) {
    if (one.replica == replica) return static_cast<double>(one.at_ns) * 1e-9;
  }
  return -1;
}

TEST(StartFetches, one_alone_is_as_fast_as_its_link_and_two_share_the_place) {
  StartFetches alone({.bytes_per_s = 10, .shared_bytes_per_s = 10});
  alone.begin(0, 0, 100);
  EXPECT_NEAR(end_of(alone, 0, 0), 10, 1e-6);
  StartFetches both({.bytes_per_s = 10, .shared_bytes_per_s = 10});
  both.begin(0, 0, 100);
  both.begin(1, 0, 100);
  EXPECT_NEAR(end_of(both, 0, 0), 20, 1e-6);
  EXPECT_NEAR(end_of(both, 1, 0), 20, 1e-6);
  StartFetches wide({.bytes_per_s = 10});
  wide.begin(0, 0, 100);
  wide.begin(1, 0, 100);
  EXPECT_NEAR(end_of(wide, 1, 0), 10, 1e-6) << "each from a place of its own";
}

// By hand: 50 bytes alone, then 50 at half the rate; the second one's other 50 alone again.
TEST(StartFetches, one_that_comes_later_slows_the_first_down) {
  StartFetches fetches({.bytes_per_s = 10, .shared_bytes_per_s = 10});
  fetches.begin(0, 0, 100);
  EXPECT_NEAR(end_of(fetches, 0, 0), 10, 1e-6);
  fetches.begin(1, 5 * kSecond, 100);
  EXPECT_NEAR(end_of(fetches, 0, 4), 15, 1e-6);
  EXPECT_NEAR(end_of(fetches, 1, 5), 20, 1e-6);
  // Reported once that it has ended.
  EXPECT_NEAR(end_of(fetches, 0, 16), 15, 1e-6);
  EXPECT_EQ(end_of(fetches, 0, 17), -1);
}

TEST(StartFetches, what_is_given_up_leaves_its_share_to_the_others) {
  StartFetches fetches({.bytes_per_s = 10, .shared_bytes_per_s = 10});
  fetches.begin(0, 0, 100);
  fetches.begin(1, 0, 100);
  fetches.cancel(1, 10 * kSecond);  // after 50 bytes of each
  EXPECT_NEAR(end_of(fetches, 0, 10), 15, 1e-6);
  EXPECT_EQ(end_of(fetches, 1, 10), -1);
}

}  // namespace
}  // namespace pelton::simulator
