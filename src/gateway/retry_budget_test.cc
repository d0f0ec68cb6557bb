#include "gateway/retry_budget.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr int64_t kS = 1'000'000'000;

// GW-16: a storm of refusals is at most a tenth more than the requests themselves.
TEST(RetryBudget, IsAShareOfTheLastRequests) {
  RetryBudget budget({});
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.note_request(100 * kS);
    if (budget.take(100 * kS)) ++taken;
  }
  EXPECT_LE(taken, 100);
  EXPECT_GE(taken, 99);
  EXPECT_FALSE(budget.take(109 * kS));
  // Those of the storm have passed out of the window, and so have their requests.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.take(110 * kS)) << i;
  EXPECT_FALSE(budget.take(110 * kS));
}

TEST(RetryBudget, IsWhatIsAskedFor) {
  RetryBudget budget({});
  for (int i = 0; i < 100; ++i) budget.note_request(100 * kS);
  EXPECT_EQ(budget.left(100 * kS), 10);
  budget.set_share(0.5);
  EXPECT_EQ(budget.left(100 * kS), 50);
  EXPECT_TRUE(budget.take(100 * kS));
  EXPECT_EQ(budget.left(100 * kS), 49);
  budget.set_share(0);
  EXPECT_EQ(budget.left(100 * kS), 0);
  EXPECT_FALSE(budget.take(100 * kS));
}

}  // namespace
}  // namespace pelton::gateway
