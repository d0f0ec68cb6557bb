// What packed weights may lose: golden's limits; where they give way, what the model itself loses
// in bf16, never more than the widest.
#include "models/accuracy_gate.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::models {
namespace {

using testing::HasSubstr;

constexpr WeightLoss kLittle{
    .error_mean = 7e-3, .error_max = 9e-3, .divergence = 2e-4, .agreement = 0.98, .lost_gap = 0.05};
constexpr WeightLoss kMuch{
    .error_mean = 3e-2, .error_max = 2e-1, .divergence = 8e-2, .agreement = 0.85, .lost_gap = 0.6};

TEST(AccuracyGate, AModelThatBearsRoundingIsHeldToGoldensLimits) {
  const WeightLossLimits limits = limits_beside(kLittle);
  EXPECT_EQ(limits.error_mean, 1.4e-2);
  EXPECT_EQ(limits.error_max, 2.5e-2);
  EXPECT_EQ(limits.divergence, 6e-4);
  EXPECT_EQ(limits.agreement, 0.97);
  EXPECT_EQ(limits.lost_gap, 0.2);
  EXPECT_EQ(excess(kLittle, limits), "");
  EXPECT_THAT(excess(kMuch, limits),
              AllOf(HasSubstr("relative error, mean 3.00e-02, limit 1.40e-02"),
                    HasSubstr("relative error, worst"), HasSubstr("divergence"),
                    HasSubstr("other best tokens"), HasSubstr("gap")));
}

TEST(AccuracyGate, ACoarseHeadMayPartFurtherOverTheWholeVocabulary) {
  WeightLoss coarse = kLittle;
  coarse.compared = ComparedLogits::kThatMatter;
  EXPECT_EQ(golden_limits(ComparedLogits::kThatMatter).divergence, 1e-3);
  EXPECT_EQ(golden_limits(ComparedLogits::kAll).divergence, 6e-4);
  EXPECT_EQ(limits_beside(coarse).divergence, 1e-3);
  EXPECT_EQ(limits_beside(coarse).error_mean, 1.4e-2);
}

TEST(AccuracyGate, AModelThatAmplifiesRoundingIsHeldToItsOwnArithmetic) {
  const WeightLossLimits limits = limits_beside(kMuch);
  EXPECT_EQ(excess(kMuch, limits), "");
  EXPECT_EQ(excess(kLittle, limits), "");
  // Each for itself.
  const auto refused = [&](auto change, const char* what) {
    WeightLoss loss = kMuch;
    change(loss);
    EXPECT_THAT(excess(loss, limits), HasSubstr(what));
  };
  refused([](WeightLoss& loss) { loss.error_mean = 3.1e-2; }, "relative error, mean");
  refused([](WeightLoss& loss) { loss.error_max = 2.1e-1; }, "relative error, worst");
  refused([](WeightLoss& loss) { loss.divergence = 8.1e-2; }, "divergence");
  refused([](WeightLoss& loss) { loss.agreement = 0.84; }, "other best tokens");
  refused([](WeightLoss& loss) { loss.lost_gap = 0.61; }, "gap");
}

TEST(AccuracyGate, ThereIsAWidest) {
  const WeightLoss noise{
      .error_mean = 0.9, .error_max = 3, .divergence = 4, .agreement = 0.1, .lost_gap = 9};
  const WeightLossLimits limits = limits_beside(noise);
  EXPECT_EQ(limits.error_mean, kWidestLimits.error_mean);
  EXPECT_EQ(limits.error_max, kWidestLimits.error_max);
  EXPECT_EQ(limits.divergence, kWidestLimits.divergence);
  EXPECT_EQ(limits.agreement, kWidestLimits.agreement);
  EXPECT_EQ(limits.lost_gap, kWidestLimits.lost_gap);
  EXPECT_NE(excess(noise, limits), "");
}

TEST(AccuracyGate, WhatIsNoNumberWidensNothing) {
  for (double WeightLoss::*field : {&WeightLoss::error_mean, &WeightLoss::error_max,
                                    &WeightLoss::divergence, &WeightLoss::lost_gap}) {
    for (const double value :
         {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      WeightLoss broken = kMuch;
      broken.*field = value;
      EXPECT_FALSE(broken.is_finite());
      EXPECT_EQ(limits_beside(broken).error_mean, WeightLossLimits{}.error_mean);
      EXPECT_EQ(limits_beside(broken).agreement, WeightLossLimits{}.agreement);
    }
  }
}

}  // namespace
}  // namespace pelton::models
