#include "kernels/routing.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::kernels {
namespace {

using Kind = RouterShape::Kind;

std::vector<ExpertChoice> routed(const std::vector<float>& logits, RouterShape shape) {
  shape.experts = static_cast<int>(logits.size());
  std::vector<ExpertChoice> choices(static_cast<size_t>(shape.k));
  route_token(choices.data(), logits.data(), shape);
  return choices;
}

float sigmoid(double x) {
  return static_cast<float>(1.0 / (1.0 + std::exp(-x)));
}

// Shares of all experts: e^1 and e^0 of e^1 + e^0 + 2 e^-1.
TEST(Routing, SoftmaxOverAllIsNotRenormalisedUnlessAsked) {
  const std::vector<float> logits = {-1, 1, -1, 0};
  const double total = std::exp(1.0) + 1 + 2 * std::exp(-1.0);
  const auto shares = routed(logits, {.kind = Kind::kSoftmax, .k = 2});
  EXPECT_EQ(shares[0].expert, 1);
  EXPECT_EQ(shares[1].expert, 3);
  EXPECT_NEAR(shares[0].weight, std::exp(1.0) / total, 1e-7);
  EXPECT_NEAR(shares[1].weight, 1 / total, 1e-7);
  const auto normed = routed(logits, {.kind = Kind::kSoftmax, .k = 2, .normalises = true});
  EXPECT_NEAR(normed[0].weight + normed[1].weight, 1.0, 1e-7);
}

// The correction lifts expert 2 into the choice; its weight is its own score.
TEST(Routing, CorrectionCountsForTheChoiceAlone) {
  const std::vector<float> logits = {0, 2, -1, 1};
  const std::vector<float> correction = {0, 0, 5, 0};
  const auto choices =
      routed(logits, {.kind = Kind::kSigmoid, .k = 2, .correction = correction.data()});
  EXPECT_EQ(choices[0].expert, 2);
  EXPECT_EQ(choices[1].expert, 1);
  EXPECT_EQ(choices[0].weight, sigmoid(-1));
  EXPECT_EQ(choices[1].weight, sigmoid(2));
}

// Groups (3, -9), (2, 2), (1, 1): by their best the first wins, by two together the second.
TEST(Routing, GroupsAreAsGoodAsTheirBestOrTheirTwoBest) {
  const std::vector<float> logits = {3, -9, 2, 2, 1, 1};
  RouterShape shape{.kind = Kind::kSigmoid, .k = 2, .groups = 3, .groups_kept = 1};
  EXPECT_EQ(routed(logits, shape)[1].expert, 1);
  shape.group_by_two = true;
  const auto by_two = routed(logits, shape);
  EXPECT_EQ(by_two[0].expert, 2);  // the lower of equals
  EXPECT_EQ(by_two[1].expert, 3);
}

// A group that is out is never chosen from, even where scores in it are all that is above zero.
TEST(Routing, MaskedGroupsAreNeverChosenFrom) {
  const std::vector<float> correction = {-2, -2, -3, -3};
  const auto choices = routed({0, 0, 0, 0}, {.kind = Kind::kSigmoid,
                                             .k = 2,
                                             .correction = correction.data(),
                                             .groups = 2,
                                             .groups_kept = 1});
  EXPECT_EQ(choices[0].expert, 0);
  EXPECT_EQ(choices[1].expert, 1);
}

TEST(Routing, ScaleComesLast) {
  const auto choices =
      routed({1, 1, 1, 1}, {.kind = Kind::kSigmoid, .k = 4, .normalises = true, .scale = 2.5f});
  for (const ExpertChoice& choice : choices) EXPECT_NEAR(choice.weight, 2.5 / 4, 1e-7);
}

}  // namespace
}  // namespace pelton::kernels
