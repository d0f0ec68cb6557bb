#include "admission/rate_limiter.h"

#include <algorithm>
#include <deque>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::admission {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(TokenBucket, holds_a_minutes_worth_and_flows_back_evenly) {
  TokenBucket bucket(60, 0);
  EXPECT_EQ(bucket.left(0), 60);
  bucket.take(60, 0);
  EXPECT_EQ(bucket.left(0), 0);
  EXPECT_EQ(bucket.wait_ns(1, 0), kSecond);
  EXPECT_EQ(bucket.wait_ns(10, 0), 10 * kSecond);
  EXPECT_EQ(bucket.wait_ns(1, kSecond), 0);
  EXPECT_EQ(bucket.left(30 * kSecond), 30);
  EXPECT_EQ(bucket.until_full_ns(30 * kSecond), 30 * kSecond);
  EXPECT_EQ(bucket.left(1000 * kSecond), 60);
}

TEST(TokenBucket, what_is_larger_than_it_needs_it_full_and_leaves_a_debt) {
  TokenBucket bucket(60, 0);
  EXPECT_EQ(bucket.wait_ns(180, 0), 0);
  bucket.take(180, 0);
  EXPECT_EQ(bucket.left(0), 0);
  EXPECT_EQ(bucket.wait_ns(1, 0), 121 * kSecond);
  EXPECT_EQ(bucket.wait_ns(1000, 0), 180 * kSecond);
}

TEST(TokenBucket, time_never_goes_back) {
  TokenBucket bucket(60, 10 * kSecond);
  bucket.take(60, 10 * kSecond);
  EXPECT_EQ(bucket.left(0), 0);
  EXPECT_EQ(bucket.left(11 * kSecond), 1);
}

TEST(RateLimiter, requests_per_minute) {
  RateLimiter limiter;
  const Limits limits{.requests_per_minute = 2};
  EXPECT_FALSE(limiter.enter("a", limits, 0));
  EXPECT_FALSE(limiter.enter("a", limits, 0));
  const auto refusal = limiter.enter("a", limits, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->bound, RateLimiter::Bound::kRequests);
  EXPECT_EQ(refusal->limit, 2);
  EXPECT_EQ(refusal->retry_ns, 30 * kSecond);
  EXPECT_FALSE(limiter.enter("b", limits, 0));  // another account
  EXPECT_FALSE(limiter.enter("a", limits, 30 * kSecond));
  EXPECT_TRUE(limiter.enter("a", limits, 30 * kSecond));
  limiter.give_back_request("a", 30 * kSecond);
  EXPECT_FALSE(limiter.enter("a", limits, 30 * kSecond));
}

TEST(RateLimiter, concurrent_requests) {
  RateLimiter limiter;
  const Limits limits{.concurrent_requests = 1};
  EXPECT_FALSE(limiter.enter("a", limits, 0));
  const auto refusal = limiter.enter("a", limits, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->bound, RateLimiter::Bound::kConcurrent);
  limiter.leave("a", 0);
  EXPECT_FALSE(limiter.enter("a", limits, 0));
}

TEST(RateLimiter, tokens_are_reserved_and_settled) {
  RateLimiter limiter;
  const Limits limits{.tokens_per_minute = 6000};
  ASSERT_FALSE(limiter.enter("a", limits, 0));
  ASSERT_FALSE(limiter.reserve("a", 5000, 0));
  ASSERT_FALSE(limiter.enter("a", limits, 0));
  const auto refusal = limiter.reserve("a", 2000, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->bound, RateLimiter::Bound::kTokens);
  EXPECT_EQ(refusal->retry_ns, 10 * kSecond);
  limiter.settle("a", 5000, 3000, 0);  // it cost less than was thought
  EXPECT_EQ(limiter.levels("a", 0).tokens->left, 3000);
  ASSERT_FALSE(limiter.reserve("a", 2000, 0));
  limiter.settle("a", 2000, 9000, 0);  // and this one more: a debt of 6000
  EXPECT_EQ(limiter.levels("a", 0).tokens->left, 0);
  EXPECT_EQ(limiter.reserve("a", 1, 60 * kSecond)->retry_ns, 10'000'000);
  EXPECT_FALSE(limiter.reserve("a", 1, 61 * kSecond));
}

// A key file that is read anew says other numbers.
TEST(RateLimiter, new_limits_count_what_was_used) {
  RateLimiter limiter;
  for (int i = 0; i < 8; ++i) {
    ASSERT_FALSE(limiter.enter("a", {.requests_per_minute = 10}, 0));
  }
  EXPECT_TRUE(limiter.enter("a", {.requests_per_minute = 4}, 0));
  for (int i = 0; i < 12; ++i) {
    EXPECT_FALSE(limiter.enter("a", {.requests_per_minute = 20}, 0)) << i;
  }
  EXPECT_TRUE(limiter.enter("a", {.requests_per_minute = 20}, 0));
  EXPECT_FALSE(limiter.enter("a", {}, 0));  // no bound any more
}

TEST(RateLimiter, forgets_who_owes_nothing) {
  RateLimiter limiter;
  ASSERT_FALSE(limiter.enter("free", {.concurrent_requests = 5}, 0));
  limiter.leave("free", 0);
  EXPECT_EQ(limiter.account_count(), 0u);
  for (int i = 0; i < 50'000; ++i) {
    const std::string name = std::to_string(i);
    ASSERT_FALSE(limiter.enter(name, {.requests_per_minute = 60}, i * kSecond));
    limiter.leave(name, i * kSecond);
    ASSERT_LE(limiter.account_count(), 20'100u);
  }
}

// However requests come and whatever they turn out to cost, over any stretch of time no more is
// let in than the stretch and one full bucket allow, the last request's surprise aside.
TEST(RateLimiter, never_more_than_time_and_a_full_bucket_allow) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t draw = 0;
    const auto random = [&](int64_t below) {
      return static_cast<int64_t>(base::random_bits(seed, draw++) % static_cast<uint64_t>(below));
    };
    constexpr int64_t kPerMinute = 6000;
    constexpr int64_t kLargest = 500;
    RateLimiter limiter;
    std::deque<std::pair<int64_t, int64_t>> spent;  // time, tokens
    int64_t now = 0;
    int64_t total = 0;
    for (int i = 0; i < 2000; ++i) {
      now += random(kSecond);
      if (limiter.enter("a", {.tokens_per_minute = kPerMinute}, now)) continue;
      const int64_t thought = random(kLargest);
      if (!limiter.reserve("a", thought, now)) {
        const int64_t cost = random(kLargest);
        limiter.settle("a", thought, cost, now);
        spent.emplace_back(now, cost);
        total += cost;
      }
      limiter.leave("a", now);
    }
    const double minutes = static_cast<double>(now) / 60e9;
    EXPECT_LE(static_cast<double>(total), (minutes + 1) * kPerMinute + kLargest) << seed;
    EXPECT_GE(static_cast<double>(total), minutes * kPerMinute * 0.9) << seed;
  }
}

}  // namespace
}  // namespace pelton::admission
