#include "gateway/cost_router.h"

#include <gtest/gtest.h>

#include "gateway/peer_choice.h"

namespace pelton::gateway {
namespace {

constexpr cluster::StepCosts kCosts{
    .fixed_s = 0.01, .prefill_token_s = 1e-4, .row_s = 2e-4, .context_token_s = 1e-8};

CostCandidate worker(int rows) {
  return {.costs = kCosts, .slots = 64, .rows = rows, .context_tokens = rows * 1000};
}

// 1000 tokens at 10 000 a second, alone: 0.1 s and a step of 10.21 ms, then nine more steps.
TEST(CostRouter, AnEmptyWorkerCostsItsOwnTime) {
  const CostTerms terms = cost_of({.prompt_tokens = 1000, .output_tokens = 10}, worker(0));
  EXPECT_NEAR(terms.first_s, 0.1 + 0.01021, 1e-9);
  EXPECT_NEAR(terms.rest_s, 9 * 0.01021, 1e-9);
  EXPECT_EQ(terms.harm_s, 0);
  EXPECT_EQ(terms.room_s, 0);
  EXPECT_NEAR(terms.total_s, terms.first_s + terms.rest_s, 1e-12);
}

TEST(CostRouter, AHitIsWorthALongerQueue) {
  CostCandidate warm = worker(8);
  warm.hit_tokens = 8000;
  const std::vector<CostCandidate> two = {worker(4), warm};
  EXPECT_EQ(choose_by_cost({.prompt_tokens = 8192, .output_tokens = 50}, two, 1, nullptr), 1u);
  EXPECT_EQ(choose_by_cost({.prompt_tokens = 100, .output_tokens = 50}, two, 1, nullptr), 0u);
}

// GW-12: a hot prefix spreads once waiting for it costs more than computing it.
TEST(CostRouter, LoadBeatsAffinityInTheEnd) {
  CostCandidate warm = worker(8);
  warm.hit_tokens = 2000;
  warm.waiting = 20;
  warm.waiting_tokens = 20'000;
  const std::vector<CostCandidate> two = {worker(8), warm};
  EXPECT_EQ(choose_by_cost({.prompt_tokens = 2048, .output_tokens = 50}, two, 1, nullptr), 0u);
}

// Then it fetches the prefix, where that is sooner than waiting for who has it: so it is copied.
TEST(CostRouter, AHotPrefixIsFetchedByWhoIsSooner) {
  CostCandidate warm = worker(0);
  warm.hit_tokens = 2000;
  warm.waiting = 1;
  warm.waiting_tokens = 1500;  // 0.15 s, less than the 0.2 s of computing the prefix
  std::vector<CostCandidate> two = {worker(0), warm};
  const CostRequest request{.prompt_tokens = 2048, .output_tokens = 2};
  const std::vector<int64_t> held = {0, 2000};
  const auto chosen = [&](const std::vector<uint32_t>& exchange, std::optional<double> token_s) {
    std::vector<CostCandidate> all = two;
    price_fetches({.held = held, .exchange = exchange, .token_s = token_s}, all);
    return choose_by_cost(request, all, 1, nullptr);
  };
  EXPECT_EQ(chosen({1, 1}, std::nullopt), 1u);
  EXPECT_EQ(chosen({1, 1}, 1e-5), 0u);    // 20 ms
  EXPECT_EQ(chosen({1, 1}, 0.9e-4), 1u);  // the worker would decline it
  EXPECT_EQ(chosen({1, 2}, 1e-5), 1u);
  EXPECT_EQ(chosen({0, 0}, 1e-5), 1u);
  const std::vector<uint32_t> exchange = {1, 1};
  price_fetches({.held = held, .exchange = exchange, .token_s = 1e-5}, two);
  EXPECT_EQ(two[0].fetch_tokens, 2000);
  EXPECT_EQ(two[1].fetch_tokens, 0);
  EXPECT_NEAR(cost_of(request, two[0]).fetch_s, 0.02, 1e-12);
  EXPECT_NEAR(cost_of(request, two[0]).first_s, 0.02 + 0.0048 + 0.01 + 2e-4 + 2048e-8, 1e-9);
}

// Two have as much: it is fetched over the quicker link, and not where both are slower than
// computing it; over a slow link the one with less is asked.
TEST(CostRouter, AFetchIsPricedByItsLink) {
  const std::vector<int64_t> held = {0, 2000, 2000, 1500};
  const std::vector<uint32_t> exchange = {1, 1, 1, 1};
  const std::vector<CostCandidate> four(4, worker(0));
  const auto priced = [&](double first_s, double second_s, double third_s) {
    std::vector<CostCandidate> all = four;
    const double rates[] = {0, first_s, second_s, third_s};
    price_fetches({.held = held,
                   .exchange = exchange,
                   .token_s = 1e-5,
                   .pair_token_s = [&](size_t from, size_t to) -> std::optional<double> {
                     EXPECT_NE(from, to);
                     return to == 0 ? rates[from] : 1e-5;
                   }},
                  all);
    return all[0];
  };
  const CostCandidate quick = priced(1e-6, 5e-5, 1e-3);
  EXPECT_EQ(quick.fetch_tokens, 2000);
  EXPECT_EQ(quick.fetch_token_s, 1e-6);
  EXPECT_EQ(priced(1e-3, 5e-5, 1e-3).fetch_token_s, 5e-5);
  EXPECT_EQ(priced(1e-3, 1e-3, 1e-3).fetch_tokens, 0);
  const CostCandidate less = priced(1e-3, 7e-5, 1e-6);
  EXPECT_EQ(less.fetch_tokens, 1500);
  EXPECT_EQ(less.fetch_token_s, 1e-6);
}

TEST(PeerChoice, OverAQuickLinkRatherThanASlowOne) {
  const std::vector<int64_t> hits = {0, 500, 500, 400};
  const auto chosen = [&](const std::vector<double>& token_s) {
    return choose_peer({.hits = hits,
                        .chosen = 0,
                        .chosen_hit = 0,
                        .draw = 1,
                        .fetch_token_s = token_s,
                        .compute_token_s = 1e-4})
        ->worker;
  };
  EXPECT_EQ(chosen({0, 1e-6, 9e-5, 9e-5}), 1u);
  EXPECT_EQ(chosen({0, 9e-5, 1e-6, 9e-5}), 2u);
  EXPECT_EQ(chosen({0, 9e-5, 9e-5, 1e-6}), 3u) << "less, and sooner";
  // None is worth it: the worker itself declines.
  EXPECT_NE(chosen({0, 1e-3, 1e-3, 1e-3}), 0u);
}

// A link is what was measured on it, for a minute; before and then what all of them are.
TEST(FetchPaces, EachLinkHasItsOwn) {
  constexpr int64_t kSecond = 1'000'000'000;
  FetchPaces paces;
  EXPECT_FALSE(paces.token_s(0, {.from = 1, .to = 2}));
  for (int i = 0; i < 20; ++i) {
    paces.note(i, {.from = 1, .to = 2}, 0.011, 0.001, 1000);
    paces.note(i, {.from = 3, .to = 2}, 1.001, 0.001, 1000);
  }
  EXPECT_NEAR(*paces.token_s(0, {.from = 1, .to = 2}), 1e-5, 1e-9);
  EXPECT_NEAR(*paces.token_s(0, {.from = 3, .to = 2}), 1e-3, 1e-9);
  const double all_s = *paces.token_s();
  EXPECT_GT(all_s, 1e-5);
  EXPECT_EQ(paces.token_s(0, {.from = 2, .to = 1}), all_s) << "there it was never measured";
  EXPECT_EQ(paces.token_s(61 * kSecond, {.from = 3, .to = 2}), all_s) << "long ago";
  paces.note(61 * kSecond, {.from = 3, .to = 2}, 0.021, 0.001, 1000);
  EXPECT_NEAR(*paces.token_s(61 * kSecond, {.from = 3, .to = 2}), 2e-5, 1e-9) << "not mixed";
  paces.note(0, {.from = 1, .to = 2}, 1, 0, 0);  // nothing was fetched
  EXPECT_NEAR(*paces.token_s(0, {.from = 1, .to = 2}), 1e-5, 1e-9);
}

// Prompts that keep coming hold up an answer as those do that are there.
TEST(CostRouter, PromptsToComeSlowAnAnswerDown) {
  CostCandidate busy = worker(2);
  busy.prompt_share = 0.5;
  const CostRequest request{.prompt_tokens = 100, .output_tokens = 101};
  EXPECT_NEAR(cost_of(request, busy).rest_s, 2 * cost_of(request, worker(2)).rest_s, 1e-9);
  busy.prompt_share = 7;
  EXPECT_NEAR(cost_of(request, busy).rest_s, 10 * cost_of(request, worker(2)).rest_s, 1e-9);
  PromptShare share;
  EXPECT_EQ(share.at(5), 0);
  for (int i = 0; i < 200; ++i) share.note(int64_t{i} * 1'000'000'000, 0.6);
  EXPECT_NEAR(share.at(199'000'000'000), 0.6, 0.02);
  EXPECT_NEAR(share.at(219'000'000'000), 0.6 / 2.718, 0.02);
}

TEST(PeerChoice, OneOfThoseThatHaveAsMuchIsDrawn) {
  std::vector<int> drawn(4);
  const std::vector<int64_t> hits = {0, 500, 500, 500};
  for (uint64_t draw = 0; draw < 300; ++draw) {
    const auto one = choose_peer({.hits = hits, .chosen = 0, .chosen_hit = 64, .draw = draw});
    ASSERT_TRUE(one);
    EXPECT_EQ(one->tokens, 500);
    ++drawn[one->worker];
  }
  for (size_t i = 1; i < 4; ++i) EXPECT_GT(drawn[i], 60);
  const auto less = choose_peer({.hits = hits, .chosen = 0, .chosen_hit = 437});
  EXPECT_FALSE(less);  // 63 tokens more
  EXPECT_TRUE(choose_peer({.hits = hits, .chosen = 0, .chosen_hit = 436}));
}

// A request goes where its adapter is, until waiting there costs more than having it loaded; where
// nobody has it, where it pushes nobody out.
TEST(CostRouter, AnAdapterInMemoryIsWorthItsLoad) {
  const CostRequest request{.prompt_tokens = 100, .output_tokens = 2};
  CostCandidate away = worker(2);
  away.adapter_s = 0.2;
  EXPECT_EQ(choose_by_cost(request, std::vector{away, worker(4)}, 1, nullptr), 1u);
  CostCandidate busy = worker(4);
  busy.waiting = 4;
  busy.waiting_tokens = 8000;  // 0.8 s
  EXPECT_EQ(choose_by_cost(request, std::vector{away, busy}, 1, nullptr), 0u);
  CostCandidate full = away;
  full.pushed_out_s = 0.1;
  std::vector<CostTerms> terms;
  EXPECT_EQ(choose_by_cost(request, std::vector{full, away}, 1, &terms), 1u);
  EXPECT_NEAR(terms[0].total_s - terms[1].total_s, 0.1, 1e-12);
  EXPECT_NEAR(terms[1].first_s - cost_of(request, worker(2)).first_s, 0.2, 1e-12);
  EXPECT_NEAR(terms[0].adapter_s, 0.2, 1e-12);
  EXPECT_NEAR(terms[0].pushed_out_s, 0.1, 1e-12);
}

// While the near zone has room nothing is sent across, not even to who holds the prompt and is
// idle.
TEST(CostRouter, TheNearestThatHasRoomIsAskedFirst) {
  CostCandidate near = worker(40);
  CostCandidate far = worker(0);
  far.distance_s = 0.05;
  far.hit_tokens = 4000;
  CostCandidate farther = worker(0);
  farther.distance_s = 0.2;
  const CostRequest request{.prompt_tokens = 4096, .output_tokens = 500};
  const auto chosen = [&] {
    return choose_by_cost(request, std::vector{near, far, farther}, 1, nullptr);
  };
  EXPECT_EQ(chosen(), 0u);
  near.rows = 64;  // all slots
  EXPECT_EQ(chosen(), 1u);
  near.rows = 40;
  near.kv_used = 0.95;
  EXPECT_EQ(chosen(), 1u);
  far.waiting = 64;
  EXPECT_EQ(chosen(), 2u);
  farther.uncounted = 64;
  EXPECT_TRUE(chosen()) << "none has room: by cost alone";
  near.usable = far.usable = farther.usable = false;
  EXPECT_FALSE(chosen());
}

// Load alone makes nobody sick, nor does older hardware nearby; ten times as long a step does.
TEST(CostRouter, OneIsSickThatIsSlowWithNothingToDo) {
  const CostRequest request{.prompt_tokens = 500, .output_tokens = 200};
  CostCandidate far = worker(0);
  far.distance_s = 0.08;
  CostCandidate near = worker(63);
  near.waiting = 40;
  near.waiting_tokens = 100'000;
  near.slot_wait_s = 30;
  near.kv_used = 0.99;
  EXPECT_FALSE(is_sick(request, near, far));
  const auto slowed = [](double times) {
    CostCandidate slow = worker(0);
    slow.costs.fixed_s *= times;
    slow.costs.prefill_token_s *= times;
    slow.costs.row_s *= times;
    slow.costs.context_token_s *= times;
    return slow;
  };
  EXPECT_FALSE(is_sick(request, slowed(3), far));
  EXPECT_TRUE(is_sick(request, slowed(10), far));
  CostCandidate late = worker(0);  // says that it is fast
  late.bias = late.rest_bias = 10;
  EXPECT_TRUE(is_sick(request, late, far));
  far.distance_s = 60;
  EXPECT_FALSE(is_sick(request, slowed(10), far)) << "the way there is longer than that";
}

TEST(CostRouter, WhatTheWayCostsKeepsItNear) {
  CostCandidate near = worker(64);
  near.slot_wait_s = 1;
  CostCandidate far = worker(0);
  far.distance_s = 0.05;
  const CostRequest request{.prompt_tokens = 500, .output_tokens = 100};
  const auto chosen = [&] { return choose_by_cost(request, std::vector{near, far}, 1, nullptr); };
  EXPECT_EQ(chosen(), 1u);
  const double free_s = cost_of(request, far).total_s;
  far.far_s = 30;
  EXPECT_DOUBLE_EQ(cost_of(request, far).total_s, free_s + 30);
  EXPECT_EQ(chosen(), 0u) << "the wait here is shorter";
  far.far_s = 0;
  EXPECT_EQ(chosen(), 1u);
}

TEST(CostRouter, AFullCacheAndALiarAreAvoided) {
  CostCandidate full = worker(0);
  full.kv_used = 0.99;
  CostCandidate liar = worker(0);  // says that it has nothing to do, and answers late
  liar.bias = 100;
  const std::vector<CostCandidate> three = {full, liar, worker(2)};
  EXPECT_EQ(choose_by_cost({.prompt_tokens = 4000, .output_tokens = 10}, three, 1, nullptr), 2u);
}

TEST(CostRouter, ExplainsWhatItDecidesBy) {
  std::vector<CostTerms> terms;
  const std::vector<CostCandidate> three = {worker(1), worker(30), {.usable = false}};
  const CostRequest request{.prompt_tokens = 500, .output_tokens = 20};
  EXPECT_EQ(choose_by_cost(request, three, 5, &terms), 0u);
  ASSERT_EQ(terms.size(), 3u);
  EXPECT_LT(terms[0].total_s, terms[1].total_s);
  EXPECT_FALSE(choose_by_cost(request, std::span(three).last(1), 5, nullptr).has_value());
}

TEST(CostRouter, TheThresholdRuleIsSglangs) {
  CostCandidate warm = worker(10);
  warm.hit_tokens = 400;
  std::vector<CostCandidate> two = {worker(0), warm};
  EXPECT_EQ(choose_by_threshold({.prompt_tokens = 1000}, two), 1u);
  EXPECT_EQ(choose_by_threshold({.prompt_tokens = 2000}, two), 0u) << "too short a match";
  two[1].rows = 65;
  EXPECT_EQ(choose_by_threshold({.prompt_tokens = 1000}, two), 0u) << "too uneven a load";
}

}  // namespace
}  // namespace pelton::gateway
