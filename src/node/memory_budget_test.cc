#include "node/memory_budget.h"

#include <optional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::node {
namespace {

using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(MemoryBudget, WhatOneHasTheOthersHaveNot) {
  MemoryBudget budget(10 * kGiB);
  EXPECT_EQ(budget.left(), 10 * kGiB);
  Result<MemoryBudget::Share> a = budget.take("a", 6 * kGiB);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(budget.left(), 4 * kGiB);
  Result<MemoryBudget::Share> b = budget.take("b", 4 * kGiB);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(budget.left(), 0);
  ASSERT_EQ(budget.uses().size(), 2u);
  EXPECT_EQ(budget.uses()[1].model, "b");
  EXPECT_EQ(budget.uses()[1].bytes, 4 * kGiB);
}

TEST(MemoryBudget, ARefusalNamesBothNumbersAndWhoHasTheRest) {
  MemoryBudget budget(10 * kGiB);
  const Result<MemoryBudget::Share> a = budget.take("a", 7 * kGiB);
  const Result<MemoryBudget::Share> b = budget.take("b", 4 * kGiB);
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(b.error().message, HasSubstr("'b' asks for 4.00 GiB"));
  EXPECT_THAT(b.error().message, HasSubstr("3.00 GiB of 10.00 GiB are left"));
  EXPECT_THAT(b.error().message, HasSubstr("'a' has 7.00 GiB"));
  EXPECT_EQ(budget.left(), 3 * kGiB) << "it has taken nothing";
}

TEST(MemoryBudget, AShareGoesBackOnce) {
  MemoryBudget budget(10 * kGiB);
  {
    Result<MemoryBudget::Share> a = budget.take("a", 7 * kGiB);
    std::optional<MemoryBudget::Share> moved(std::move(*a));
    EXPECT_EQ(budget.left(), 3 * kGiB);
    moved.reset();
    EXPECT_EQ(budget.left(), 10 * kGiB);
  }
  EXPECT_EQ(budget.left(), 10 * kGiB);
  EXPECT_TRUE(budget.uses().empty());
}

TEST(MemoryBudget, TheFirstMayBeLargerThanMemoryAndIsThenAlone) {
  MemoryBudget budget(10 * kGiB);
  const Result<MemoryBudget::Share> large = budget.take("large", 60 * kGiB);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(budget.left(), 0);
  EXPECT_FALSE(budget.take("small", 1).ok());
}

TEST(MemoryBudget, IsSharedByThreads) {
  MemoryBudget budget(1000);
  std::vector<std::thread> threads;
  std::atomic<int> most = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 2000; ++j) {
        const Result<MemoryBudget::Share> share = budget.take("m", 400);
        if (!share.ok()) continue;
        const int has = static_cast<int>(budget.uses().size());
        if (has > most) most = has;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 2);
  EXPECT_EQ(budget.left(), 1000);
}

}  // namespace
}  // namespace pelton::node
