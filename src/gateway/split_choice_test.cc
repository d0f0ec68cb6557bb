#include "gateway/split_choice.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr cluster::StepCosts kCosts{
    .fixed_s = 0.01, .prefill_token_s = 1e-4, .row_s = 2e-4, .context_token_s = 0};

CostCandidate worker(int rows) {
  return {.costs = kCosts, .slots = 64, .rows = rows, .context_tokens = 0};
}

SplitRequest asked(int64_t prompt, int64_t output) {
  return {.request = {.prompt_tokens = prompt, .output_tokens = output},
          .block_tokens = (prompt - 1) / 32 * 32,
          .fetch_token_s = 1e-5};
}

// 8001 tokens at 10 000 a second and a step of 10.2 ms; 8000 are fetched in 80 ms, one is computed.
TEST(SplitChoice, TheTermsAreTimes) {
  const SplitTerms terms = cost_of(asked(8001, 101), worker(0), worker(0));
  EXPECT_NEAR(terms.first_s, 0.8001 + 0.0102, 1e-9);
  EXPECT_NEAR(terms.over_s, 0.0102 + 1e-4 + 0.08, 1e-9);
  EXPECT_NEAR(terms.rest_s, 100 * 0.0102 + 0.0102, 1e-9);  // and a step for the cut
  EXPECT_EQ(terms.harm_s, 0);
  SplitRequest first = asked(8001, 101);
  first.handoff = SplitConfig::Handoff::kFirst;
  EXPECT_NEAR(cost_of(first, worker(0), worker(0)).rest_s, 100 * 0.0102 + terms.over_s, 1e-9);
}

TEST(SplitChoice, WhatLiesAtTheDecoderIsNotFetched) {
  CostCandidate warm = worker(0);
  warm.hit_tokens = 8000;
  EXPECT_NEAR(cost_of(asked(8001, 101), worker(0), warm).over_s, 0.0102 + 1e-4, 1e-9);
}

// What makes it worth it: rows that a long prompt would hold up. An answer beside none is sooner
// whole, and so is a short prompt.
TEST(SplitChoice, ItPaysWhereALongPromptWouldHoldUpRows) {
  const std::vector<uint32_t> exchange = {1, 1};
  const auto pair = [&](const SplitRequest& request, int rows) {
    const std::vector<CostCandidate> all = {worker(0), worker(rows)};
    std::vector<CostCandidate> prefill = all;
    std::vector<CostCandidate> decode = all;
    prefill[1].usable = decode[0].usable = false;
    return choose_pair(request, {.prefill = prefill, .decode = decode, .exchange = exchange}, 1);
  };
  const SplitRequest longer = asked(8001, 101);
  EXPECT_LT(pair(longer, 8)->terms.total_s, cost_of(longer.request, worker(8)).total_s / 2);
  EXPECT_GT(pair(longer, 0)->terms.total_s, cost_of(longer.request, worker(0)).total_s);
  const SplitRequest shorter = asked(40, 101);
  EXPECT_GT(pair(shorter, 2)->terms.total_s, cost_of(shorter.request, worker(2)).total_s);
}

// With its first token: where prompts wait there that take longer than the rest would elsewhere.
TEST(SplitChoice, AnAnswerLeavesWherePromptsWait) {
  const SplitRequest longer = asked(8001, 41);  // 0.4 s more
  CostCandidate here = worker(1);
  EXPECT_FALSE(is_left(longer, here, worker(0)));
  here.waiting = 1;
  here.waiting_tokens = 1000;  // 0.1 s
  EXPECT_FALSE(is_left(longer, here, worker(0)));
  here.waiting_tokens = 8000;
  EXPECT_TRUE(is_left(longer, here, worker(0)));
  EXPECT_FALSE(is_left(longer, here, here)) << "there as many wait";
  SplitRequest far = longer;
  far.fetch_token_s = 1e-4;
  EXPECT_FALSE(is_left(far, here, worker(0))) << "fetching takes as long";
  EXPECT_FALSE(is_left(asked(8001, 1), here, worker(0))) << "nothing is left to say";
}

// Workers alike, of which the second one is waited for: the pair whose link is quick. (Where the
// first one goes on talking meanwhile, a slow link costs workers alike nothing.)
TEST(SplitChoice, APairIsPricedByItsLink) {
  SplitRequest request = asked(8001, 101);
  request.handoff = SplitConfig::Handoff::kFirst;
  std::vector<CostCandidate> all(4, worker(2));
  std::vector<CostCandidate> prefill = all;
  std::vector<CostCandidate> decode = all;
  prefill[2].usable = prefill[3].usable = decode[0].usable = decode[1].usable = false;
  const std::vector<uint32_t> exchange = {1, 1, 1, 1};
  for (uint64_t draw = 0; draw < 20; ++draw) {
    const auto pair =
        choose_pair(request,
                    {.prefill = prefill,
                     .decode = decode,
                     .exchange = exchange,
                     .fetch_token_s = [](size_t p, size_t d) -> std::optional<double> {
                       return p == 1 && d == 2 ? 1e-6 : 5e-4;
                     }},
                    draw);
    ASSERT_TRUE(pair);
    EXPECT_EQ(pair->prefill, 1u);
    EXPECT_EQ(pair->decode, 2u);
  }
}

TEST(SplitChoice, OnlyThoseThatExchangeArePaired) {
  const std::vector<CostCandidate> all = {worker(0), worker(2), worker(4)};
  const auto chosen = [&](const std::vector<uint32_t>& exchange) {
    return choose_pair(asked(4001, 50), {.prefill = all, .decode = all, .exchange = exchange}, 1);
  };
  EXPECT_FALSE(chosen({0, 0, 0}).has_value());
  EXPECT_FALSE(chosen({1, 2, 3}).has_value());
  const std::optional<SplitPair> pair = chosen({1, 2, 1});
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->prefill + pair->decode, 2u);
  EXPECT_NE(pair->prefill, pair->decode);
}

TEST(SplitChoice, TheEmptierWorkersAreTaken) {
  std::vector<CostCandidate> prefill = {worker(0), worker(0), worker(0), worker(0)};
  prefill[0].waiting = 4;
  prefill[0].waiting_tokens = 20'000;
  prefill[2].usable = prefill[3].usable = false;
  std::vector<CostCandidate> decode = {worker(0), worker(0), worker(12), worker(4)};
  decode[0].usable = decode[1].usable = false;
  const std::vector<uint32_t> exchange = {1, 1, 1, 1};
  for (uint64_t draw = 0; draw < 8; ++draw) {
    const auto pair = choose_pair(
        asked(4001, 200), {.prefill = prefill, .decode = decode, .exchange = exchange}, draw);
    EXPECT_EQ(pair->prefill, 1u);
    EXPECT_EQ(pair->decode, 3u);
  }
}

// Where all are equal no place is.
TEST(SplitChoice, EqualPairsAreDrawn) {
  const std::vector<CostCandidate> all(4, worker(1));
  const std::vector<uint32_t> exchange(4, 1);
  std::vector<int> times(4);
  for (uint64_t draw = 0; draw < 200; ++draw) {
    ++times[choose_pair(asked(400, 50), {.prefill = all, .decode = all, .exchange = exchange}, draw)
                ->prefill];
  }
  for (const int one : times) EXPECT_GT(one, 20);
}

}  // namespace
}  // namespace pelton::gateway
