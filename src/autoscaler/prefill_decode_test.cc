// Two pools, decided for together, and played: prompts in a queue before the first, tokens step by
// step in the second.
#include "autoscaler/prefill_decode.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr PairModel kModel = {
    .prefill = {.fixed_s = 0.005, .prefill_token_s = 20e-6, .slots = 1},
    .decode = {.fixed_s = 0.010, .prefill_token_s = 20e-6, .row_s = 0.1e-3, .slots = 400}};

RequestShape shape_of(double prompt) {
  // Lengths are exponential: three means at the 95th percentile.
  return {
      .computed = prompt, .computed_at_percentile = 3 * prompt, .context = prompt, .output = 100};
}

PairPolicy policy(int gpus) {
  return {.objective = {.first_token_s = 2, .gap_s = 0.02, .percentile = 0.95},
          .prefill_max = 1000,
          .decode_max = 1000,
          .gpus_max = gpus,
          .scale_down_delay_s = 60};
}

struct Seen {
  double first_token_s = 0;  // at the 95th percentile
  double gap_s = 0;
  int64_t answered = 0;
};

double percentile(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::ssize(values) * 95 / 100;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Rows of each decode replica, and when its step ends.
struct Decoder {
  std::vector<int> left;  // tokens, of each row
  double step_s = 0;
};

// Requests at random for so long, the first tenth not counted.
Seen play(double rate, const PairCounts& counts, const RequestShape& shape, double seconds) {
  std::mt19937_64 random(20261128);
  std::exponential_distribution<double> unit;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < counts.prefill; ++i) free_at.push(0);
  struct Begin {
    double at_s;
    int tokens;
  };
  std::vector<Begin> begins;
  std::vector<double> first_tokens;
  for (double now_s = 0; now_s < seconds; now_s += unit(random) / rate) {
    const double takes_s =
        kModel.prefill.fixed_s + shape.computed * unit(random) * kModel.prefill.prefill_token_s;
    const double end_s = std::max(now_s, free_at.top()) + takes_s;
    free_at.pop();
    free_at.push(end_s);
    begins.push_back({end_s, std::max(1, static_cast<int>(shape.output * unit(random)))});
    if (now_s > seconds / 10) first_tokens.push_back(end_s - now_s);
  }
  std::ranges::sort(begins, {}, &Begin::at_s);
  std::vector<Decoder> decoders(static_cast<size_t>(counts.decode));
  using End = std::pair<double, size_t>;  // of a step
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  std::vector<double> gaps;
  Seen seen;
  const auto begin_step = [&](double now_s, size_t replica) {
    Decoder& one = decoders[replica];
    one.step_s = 0;
    if (one.left.empty()) return;
    one.step_s = kModel.decode.fixed_s + kModel.decode.row_s * static_cast<double>(one.left.size());
    ends.push({now_s + one.step_s, replica});
  };
  const auto end_step = [&] {
    const auto [now_s, replica] = ends.top();
    ends.pop();
    Decoder& one = decoders[replica];
    const bool counts_now = now_s > seconds / 10 && now_s < seconds;
    for (int& left : one.left) {
      --left;
      if (counts_now) gaps.push_back(one.step_s);
    }
    seen.answered += std::erase(one.left, 0);
    begin_step(now_s, replica);
  };
  for (const Begin& begin : begins) {
    while (!ends.empty() && ends.top().first <= begin.at_s) end_step();
    const auto fewest =
        std::ranges::min_element(decoders, {}, [](const Decoder& one) { return one.left.size(); });
    fewest->left.push_back(begin.tokens);
    if (fewest->step_s == 0) begin_step(begin.at_s, static_cast<size_t>(fewest - decoders.begin()));
  }
  while (!ends.empty()) end_step();
  EXPECT_EQ(seen.answered, std::ssize(begins));
  seen.first_token_s = percentile(std::move(first_tokens));
  seen.gap_s = percentile(std::move(gaps));
  return seen;
}

TEST(PrefillDecode, LongerPromptsMakeThePrefillPoolLargerAlone) {
  PairScaler scaler(policy(1000));
  const PairDecision before = scaler.decide(kModel, shape_of(1000), 200, kSecond);
  const PairDecision after = scaler.decide(kModel, shape_of(8000), 200, 2 * kSecond);
  EXPECT_EQ(after.counts.decode, before.counts.decode);
  EXPECT_GE(after.counts.prefill, 6 * before.counts.prefill);
  EXPECT_FALSE(after.at_ceiling);
  for (const auto& [decision, prompt] : {std::pair(before, 1000.0), std::pair(after, 8000.0)}) {
    const Seen seen = play(200, decision.counts, shape_of(prompt), 60);
    EXPECT_LE(seen.first_token_s, 2);
    EXPECT_LE(seen.gap_s, 0.02);
  }
  // As many decode replicas and half of the others would not.
  PairCounts few = after.counts;
  few.prefill /= 2;
  EXPECT_GT(play(200, few, shape_of(8000), 60).first_token_s, 2);
}

TEST(PrefillDecode, AtACeilingBothAreLateByTheSameFactor) {
  PairPolicy asked = policy(1000);
  asked.objective.first_token_s = 0.25;
  const RequestShape shape = shape_of(4000);
  constexpr double kRate = 1500;
  PairScaler free(asked);
  const PairCounts needed = free.decide(kModel, shape, kRate, kSecond).counts;
  asked.gpus_max = (needed.prefill + needed.decode) * 82 / 100;
  PairScaler scaler(asked);
  const PairDecision decision = scaler.decide(kModel, shape, kRate, kSecond);
  EXPECT_TRUE(decision.at_ceiling);
  EXPECT_EQ(decision.counts.prefill + decision.counts.decode, asked.gpus_max);
  EXPECT_GT(decision.gap_late, 1);
  EXPECT_NEAR(decision.first_token_late / decision.gap_late, 1, 0.2);
  const Seen seen = play(kRate, decision.counts, shape, 30);
  const double first_token_late = seen.first_token_s / *asked.objective.first_token_s;
  const double gap_late = seen.gap_s / *asked.objective.gap_s;
  EXPECT_GT(gap_late, 1);
  EXPECT_NEAR(first_token_late / gap_late, 1, 0.2);
}

TEST(PrefillDecode, ThePrefillPoolGoesToZeroAndComesBack) {
  PairPolicy asked = policy(100);
  PairScaler scaler(asked);
  int64_t now_ns = kSecond;
  const auto pass = [&](double prompt, double rate, int seconds) {
    PairDecision decision;
    for (int i = 0; i < seconds; ++i) {
      now_ns += kSecond;
      decision = scaler.decide(kModel, shape_of(prompt), rate, now_ns);
      EXPECT_TRUE(decision.counts.prefill == 0 || decision.counts.decode > 0);
    }
    return decision.counts;
  };
  EXPECT_EQ(pass(100, 0, 10), (PairCounts{0, 0}));
  const PairCounts busy = pass(8000, 100, 1);
  EXPECT_GT(busy.prefill, 0) << "from zero both at once";
  EXPECT_GT(busy.decode, 0);
  const PairCounts quiet = pass(100, 5, 200);
  EXPECT_EQ(quiet.prefill, 0);
  EXPECT_EQ(quiet.decode, 1) << "one serves whole requests";
  const PairCounts again = pass(8000, 100, 1);
  EXPECT_EQ(again, busy) << "at once";
  EXPECT_EQ(pass(100, 0, 200), (PairCounts{0, 0}));
}

// Whatever comes: within the ceiling, prompts never without who decodes them, and what is needed
// where there is room for it.
TEST(PrefillDecode, WhateverComes) {
  std::mt19937_64 random(20261128);
  const auto draw = [&](double least, double most) {
    return std::exp(std::uniform_real_distribution<>(std::log(least), std::log(most))(random));
  };
  for (int stream = 0; stream < 200; ++stream) {
    PairPolicy asked = policy(static_cast<int>(draw(2, 60)));
    asked.prefill_gpus = 1 + stream % 2;
    asked.gpus_max += asked.prefill_gpus;
    PairScaler scaler(asked);
    int64_t now_ns = kSecond;
    for (int i = 0; i < 100; ++i) {
      now_ns += static_cast<int64_t>(draw(0.5, 20) * kSecond);
      const double rate = i % 7 == 0 ? 0 : draw(0.1, 2000);
      const PairDecision decision = scaler.decide(kModel, shape_of(draw(10, 20'000)), rate, now_ns);
      const PairCounts& counts = decision.counts;
      ASSERT_LE(counts.prefill * asked.prefill_gpus + counts.decode, asked.gpus_max);
      ASSERT_TRUE(counts.prefill == 0 || counts.decode > 0);
      ASSERT_TRUE(rate == 0 || counts.decode > 0);
      if (!decision.at_ceiling && counts.prefill > 0) {
        ASSERT_GE(counts.prefill, decision.needed.prefill);
        ASSERT_GE(counts.decode, decision.needed.decode);
      }
    }
  }
}

}  // namespace
}  // namespace pelton::autoscaler
