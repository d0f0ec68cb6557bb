#include "cluster/step_fit.h"

#include <random>

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

double seconds_of(const StepCosts& costs, const StepFit::Interval& one) {
  return costs.fixed_s * static_cast<double>(one.steps) +
         costs.prefill_token_s * static_cast<double>(one.prefill_tokens) +
         costs.row_s * static_cast<double>(one.output_tokens) +
         costs.context_token_s * static_cast<double>(one.context_tokens * one.steps);
}

StepFit::Interval drawn(std::mt19937_64& random) {
  const int64_t steps = 5 + static_cast<int64_t>(random() % 30);
  return {.steps = steps,
          .prefill_tokens = static_cast<int64_t>(random() % 4000),
          .output_tokens = steps * static_cast<int64_t>(random() % 60),
          .context_tokens = static_cast<int64_t>(random() % 200'000)};
}

TEST(StepFit, FindsTheLineThatMadeTheTimes) {
  const StepCosts made{
      .fixed_s = 0.007, .prefill_token_s = 90e-6, .row_s = 30e-6, .context_token_s = 40e-9};
  std::mt19937_64 random(1);
  StepFit fit;
  for (int i = 0; i < 400; ++i) {
    StepFit::Interval one = drawn(random);
    one.seconds = seconds_of(made, one) * (0.95 + 0.1 * static_cast<double>(random() % 100) / 100);
    fit.note(one);
  }
  EXPECT_NEAR(fit.costs().fixed_s, made.fixed_s, 0.1 * made.fixed_s);
  EXPECT_NEAR(fit.costs().prefill_token_s, made.prefill_token_s, 0.1 * made.prefill_token_s);
  EXPECT_NEAR(fit.costs().row_s, made.row_s, 0.2 * made.row_s);
  EXPECT_NEAR(fit.costs().context_token_s, made.context_token_s, 0.2 * made.context_token_s);
}

// One interval of thirty in which the process stood still half the time and longer.
TEST(StepFit, PausesOfTheProcessDoNotMoveIt) {
  const StepCosts made{
      .fixed_s = 0.004, .prefill_token_s = 60e-6, .row_s = 40e-6, .context_token_s = 20e-9};
  std::mt19937_64 random(3);
  StepFit fit;
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    StepFit::Interval one = drawn(random);
    one.seconds = seconds_of(made, one) * (0.95 + 0.1 * static_cast<double>(random() % 100) / 100);
    if (random() % 30 == 0) one.seconds *= 10;
    fit.note(one);
    if (i < 300) continue;
    const StepFit::Interval typical{
        .steps = 20, .prefill_tokens = 1'000, .output_tokens = 400, .context_tokens = 100'000};
    worst =
        std::max(worst, std::abs(seconds_of(fit.costs(), typical) / seconds_of(made, typical) - 1));
  }
  EXPECT_LT(worst, 0.25);
}

// A machine that has become half as fast is believed.
TEST(StepFit, FollowsAChangeForGood) {
  StepFit fit;
  std::mt19937_64 random(4);
  for (const double fixed_s : {0.004, 0.012}) {
    for (int i = 0; i < 400; ++i) {
      StepFit::Interval one = drawn(random);
      one.prefill_tokens = one.context_tokens = 0;
      one.seconds =
          fixed_s * static_cast<double>(one.steps) + 50e-6 * static_cast<double>(one.output_tokens);
      fit.note(one);
    }
    const double step_s = fit.costs().fixed_s + 30 * fit.costs().row_s;
    EXPECT_NEAR(step_s, fixed_s + 30 * 50e-6, 0.1 * fixed_s);
  }
}

// Ten times as slow, and well again later: known after some intervals, by all of its terms.
TEST(StepFit, AMachineThatHasBecomeSlowIsKnownSoon) {
  const StepCosts made{
      .fixed_s = 0.004, .prefill_token_s = 60e-6, .row_s = 40e-6, .context_token_s = 20e-9};
  const StepFit::Interval typical{
      .steps = 20, .prefill_tokens = 1'000, .output_tokens = 400, .context_tokens = 100'000};
  std::mt19937_64 random(6);
  StepFit fit;
  const auto see = [&](int count, double times) {
    for (int i = 0; i < count; ++i) {
      StepFit::Interval one = drawn(random);
      one.seconds =
          times * seconds_of(made, one) * (0.95 + 0.1 * static_cast<double>(random() % 100) / 100);
      fit.note(one);
    }
    return seconds_of(fit.costs(), typical) / seconds_of(made, typical);
  };
  EXPECT_NEAR(see(400, 1), 1, 0.1);
  EXPECT_LT(see(3, 10), 3) << "that may have been an accident";
  EXPECT_NEAR(see(3, 10), 10, 2);
  EXPECT_NEAR(see(100, 10), 10, 1);
  EXPECT_NEAR(see(12, 1), 1, 0.3);
}

// Whatever is seen, times stay times.
TEST(StepFit, NoTermIsNegative) {
  std::mt19937_64 random(2);
  StepFit fit;
  for (int i = 0; i < 2000; ++i) {
    StepFit::Interval one = drawn(random);
    one.seconds = static_cast<double>(random() % 1000) / 1e4;
    fit.note(one);
    for (const double term : {fit.costs().fixed_s, fit.costs().prefill_token_s, fit.costs().row_s,
                              fit.costs().context_token_s}) {
      ASSERT_GE(term, 0);
      ASSERT_LT(term, 10);
    }
  }
}

TEST(StepFit, IsWhatIsAssumedWhereNothingIsSeen) {
  StepFit fit;
  fit.note({});
  fit.note({.seconds = -1, .steps = 3});
  EXPECT_EQ(fit.costs().fixed_s, StepCosts().fixed_s);
  // Decoding alone says nothing of prompts.
  for (int i = 0; i < 100; ++i) fit.note({.seconds = 0.1, .steps = 20, .output_tokens = 200});
  EXPECT_NEAR(fit.costs().fixed_s * 20 + fit.costs().row_s * 200, 0.1, 0.005);
  EXPECT_NEAR(fit.costs().prefill_token_s, StepCosts().prefill_token_s, 1e-9);
}

}  // namespace
}  // namespace pelton::cluster
