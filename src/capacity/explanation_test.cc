#include "capacity/explanation.h"

#include <gtest/gtest.h>

#include "capacity/plan_report.h"
#include "capacity/test_needs.h"

namespace pelton::capacity {
namespace {

TEST(ExplanationTest, NamesTheRunnerUpAndThePriceAtWhichItWins) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  const Plan plan = allocate(needs);
  const Explanation explanation = explain(needs, plan);
  ASSERT_EQ(explanation.placements.size(), 1U);
  const auto& runner_up = explanation.placements[0].runner_up;
  ASSERT_TRUE(runner_up.has_value());
  // 2 here and 1 at the dear one: 3 instead of 2 an hour.
  EXPECT_EQ(runner_up->replicas, 2);
  EXPECT_NEAR(runner_up->dearer_by, 1, 1e-9);
  EXPECT_NEAR(*runner_up->price_until, 3, 1e-9);
  ASSERT_EQ(runner_up->instead.size(), 1U);
  EXPECT_EQ(needs.entries[static_cast<size_t>(runner_up->instead[0].entry)].name, "dear");
  // And so it is: beyond that price the plan is another one.
  needs.entries[0].price = *runner_up->price_until + 0.01;
  EXPECT_NE(allocate(needs).placements[0].entry, plan.placements[0].entry);
}

TEST(ExplanationTest, WhatIsNeededHasNoRunnerUp) {
  FleetNeeds needs = two_zones();
  const Explanation explanation = explain(needs, allocate(needs));
  ASSERT_EQ(explanation.placements.size(), 2U);
  needs.entries.resize(1);
  needs.entries[0].quota = 3;
  needs.survive.clear();
  const Plan plan = allocate(needs);
  EXPECT_FALSE(explain(needs, plan).placements[0].runner_up.has_value());
}

TEST(ExplanationTest, SaysWhatALossLeavesAndWhatBringsItBack) {
  FleetNeeds needs = two_zones();
  needs.entries[1].lead_p90_s = 240;
  needs.entries[1].stock = 0.5;  // every second order fails
  Plan plan = allocate(needs);
  Explanation explanation = explain(needs, plan);
  ASSERT_EQ(explanation.losses.size(), 2U);
  EXPECT_EQ(explanation.losses[0].domain, "zone a/eu/1");
  EXPECT_NEAR(explanation.losses[0].share_at_once, 0.8, 1e-9);  // two of 4/s are left for 10/s
  EXPECT_TRUE(explanation.losses[0].can_restore);
  EXPECT_NEAR(explanation.losses[0].restored_in_s, 480, 1e-9);
  EXPECT_NEAR(explanation.losses[0].restored_per_hour, 9, 1e-9);

  needs.entries[1].quota = 2;
  plan = allocate(needs);
  explanation = explain(needs, plan);
  EXPECT_FALSE(explanation.losses[0].can_restore);
  EXPECT_NEAR(explanation.losses[0].missing, 2, 1e-9);
}

TEST(ExplanationTest, SaysHowFarDemandMayGrow) {
  FleetNeeds needs = two_zones();
  const Plan plan = allocate(needs);
  const Explanation explanation = explain(needs, plan);
  ASSERT_EQ(explanation.models.size(), 1U);
  EXPECT_NEAR(explanation.models[0].served, 16, 1e-9);
  // 8/s without a zone for 6/s: a third more.
  EXPECT_NEAR(explanation.models[0].may_grow_by, 1.0 / 3, 1e-9);
  needs.demands[0].rate = 10 * 1.34;
  EXPECT_NE(allocate(needs).placements[0].replicas, plan.placements[0].replicas);
}

TEST(ExplanationTest, TakesAwayByNameAndByPlace) {
  FleetNeeds needs = two_zones();
  EXPECT_EQ(take_away(needs, "cheap"), 1);
  EXPECT_EQ(take_away(needs, "a/eu/2"), 1);
  EXPECT_EQ(take_away(needs, "a"), 2);
  EXPECT_EQ(take_away(needs, "b"), 0);
}

TEST(PlanReportTest, SaysThePlanInWordsAndNumbers) {
  FleetNeeds needs = two_zones();
  const Plan plan = allocate(needs);
  const Explanation explanation = explain(needs, plan);
  const std::string text = plan_text(needs, plan, &explanation);
  EXPECT_NE(text.find("m: 2 of m-on-g at cheap (on_demand, a/eu/1)"), std::string::npos) << text;
  EXPECT_NE(text.find("10 USD/h; no plan is cheaper"), std::string::npos) << text;
  EXPECT_NE(text.find("without zone a/eu/1: 80 % of m at once"), std::string::npos) << text;
  const Json json = plan_json(needs, plan, &explanation);
  EXPECT_EQ(json.find("placements")->as_array().size(), 2U);
  needs.demands[0].rate = 100;
  EXPECT_NE(plan_text(needs, allocate(needs), nullptr).find("36 are missing"), std::string::npos);
}

}  // namespace
}  // namespace pelton::capacity
