// Plans against what a reader can compute, and against trying every number there is.
#include "capacity/allocation.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "capacity/test_needs.h"

namespace pelton::capacity {
namespace {

int replicas_at(const FleetNeeds& needs, const Plan& plan, std::string_view entry) {
  int replicas = 0;
  for (const Placement& one : plan.placements) {
    if (needs.entries[static_cast<size_t>(one.entry)].name == entry) replicas += one.replicas;
  }
  return replicas;
}

TEST(AllocationTest, TheCheapestThatMeetsTheDemand) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  const Plan plan = allocate(needs);
  // 10/s from machines of 4/s: three of the cheaper.
  EXPECT_EQ(replicas_at(needs, plan, "cheap"), 3);
  EXPECT_EQ(replicas_at(needs, plan, "dear"), 0);
  EXPECT_DOUBLE_EQ(plan.per_hour, 6);
  EXPECT_TRUE(plan.is_exact);
}

TEST(AllocationTest, KeepsItsShareWithoutAnyOneZone) {
  FleetNeeds needs = two_zones();
  needs.survive_share = 0.6;
  const Plan plan = allocate(needs);
  // 6/s must be left without either zone: two machines in each.
  EXPECT_EQ(replicas_at(needs, plan, "cheap"), 2);
  EXPECT_EQ(replicas_at(needs, plan, "dear"), 2);
}

TEST(AllocationTest, OneClassMayUseWhatAnotherMayNot) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.entries[1].residency = {"eu"};
  needs.demands = {{.model = "m", .residency = {"eu"}, .rate = 3, .answer_kb = 0},
                   {.model = "m", .residency = {}, .rate = 8, .answer_kb = 0}};
  const Plan plan = allocate(needs);
  // 3/s of "eu" by one dear machine, whose fourth helps the others: 4 + 8 >= 11.
  EXPECT_EQ(replicas_at(needs, plan, "dear"), 1);
  EXPECT_EQ(replicas_at(needs, plan, "cheap"), 2);
}

TEST(AllocationTest, SpotIsOrderedWithASurplus) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.demands[0].rate = 12;
  EXPECT_EQ(replicas_at(needs, allocate(needs), "cheap"), 3);
  needs.entries[0].kind = Kind::kSpot;
  needs.entries[0].reclaim_per_h = 1;
  needs.entries[0].lead_p90_s = 360;  // one hour in eleven away: 3 x 4 x 10/11 < 12
  EXPECT_EQ(replicas_at(needs, allocate(needs), "cheap"), 4);
}

TEST(AllocationTest, OnDemandFillsWhileSpotIsAwayAndGoesBack) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.entries[0].kind = Kind::kSpot;
  needs.entries[0].away = true;
  const Plan without = allocate(needs);
  EXPECT_EQ(replicas_at(needs, without, "dear"), 3);
  needs.entries[0].away = false;
  needs.running = {{"dear", "m-on-g", 3}};
  // A move costs 3 * 2 / 2 h more than it saves, or less.
  needs.switch_cost = 2.1;
  EXPECT_EQ(replicas_at(needs, allocate(needs), "dear"), 3);
  needs.switch_cost = 1.9;
  EXPECT_EQ(replicas_at(needs, allocate(needs), "cheap"), 3);
}

TEST(AllocationTest, ReservedMachinesFirst) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.entries[1].kind = Kind::kReserved;
  needs.entries[1].quota = 2;
  const Plan plan = allocate(needs);
  EXPECT_EQ(replicas_at(needs, plan, "dear"), 2);
  EXPECT_EQ(replicas_at(needs, plan, "cheap"), 1);
  EXPECT_DOUBLE_EQ(plan.per_hour, 2 * 3 + 2);
}

TEST(AllocationTest, EgressMayMakeTheCheapDear) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.entries[0].egress_per_gb = 1;
  // 4/s * 3600 s * 100 kB = 1.44 GB an hour.
  needs.demands[0].answer_kb = 100;
  EXPECT_EQ(replicas_at(needs, allocate(needs), "dear"), 3);
}

TEST(AllocationTest, WhatCannotBeSaysWhichConstraintAndByHowMuch) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.demands[0].rate = 100;
  Plan plan = allocate(needs);
  ASSERT_EQ(plan.shortfalls.size(), 1U);
  EXPECT_EQ(plan.shortfalls[0].model, "m");
  EXPECT_DOUBLE_EQ(plan.shortfalls[0].wanted, 100);
  EXPECT_DOUBLE_EQ(plan.shortfalls[0].given, 64);  // 2 x 8 machines of 4/s
  EXPECT_EQ(plan.shortfalls[0].full, (std::vector<std::string>{"cheap", "dear"}));

  needs = two_zones();
  needs.entries[1].quota = 1;
  plan = allocate(needs);
  ASSERT_EQ(plan.shortfalls.size(), 1U);
  EXPECT_EQ(plan.shortfalls[0].without, "zone a/eu/1");
  EXPECT_DOUBLE_EQ(plan.shortfalls[0].wanted, 6);
  EXPECT_DOUBLE_EQ(plan.shortfalls[0].given, 4);
  EXPECT_EQ(plan.shortfalls[0].full, (std::vector<std::string>{"dear"}));
}

// Two models that want the same machines: each for itself would be possible.
TEST(AllocationTest, WhatCannotBeTogetherIsFound) {
  FleetNeeds needs = two_zones();
  needs.survive.clear();
  needs.entries.resize(1);
  needs.entries[0].quota = 5;
  needs.variants.push_back(
      {.name = "n-on-g", .model = "n", .machine = "g", .machines = 1, .rate = 2});
  needs.demands.push_back({.model = "n", .residency = {}, .rate = 8, .answer_kb = 0});
  const Plan plan = allocate(needs);
  ASSERT_FALSE(plan.is_possible());
  EXPECT_EQ(plan.shortfalls[0].full, (std::vector<std::string>{"cheap"}));
}

// Every number of every column, one after the other.
class EveryNumber {
 public:
  explicit EveryNumber(const AllocationProgram& made) : made_(made), values_(made.columns.size()) {
    for (const Column& column : made.columns) {
      for (size_t r = 0; r < made.meanings.size(); ++r) {
        if (made.meanings[r].kind == RowMeaning::Kind::kQuota &&
            made.meanings[r].entry == column.entry) {
          most_.push_back(static_cast<int>(-made.program.rows[r].at_least));
        }
      }
    }
    look(0, 0);
  }
  std::optional<double> cheapest() const { return cheapest_; }

 private:
  void look(size_t column, double cost) {
    if (cheapest_ && cost >= *cheapest_) return;
    if (column == values_.size()) {
      if (keeps_rows(made_.program, values_)) cheapest_ = cost;
      return;
    }
    for (values_[column] = 0; values_[column] <= most_[column]; ++values_[column]) {
      look(column + 1, cost + made_.program.costs[column] * values_[column]);
    }
    values_[column] = 0;
  }

  const AllocationProgram& made_;
  std::vector<int> values_;
  std::vector<int> most_;
  std::optional<double> cheapest_;
};

TEST(AllocationTest, AsCheapAsTheBestOfAllNumbers) {
  const int cases = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 300;
  const char* const given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  SCOPED_TRACE(fmt::format("PELTON_SEED={}", seed));
  int possible = 0;
  for (int i = 0; i < cases; ++i) {
    const FleetNeeds needs = random_small_needs(base::random_bits(seed, static_cast<uint64_t>(i)));
    const AllocationProgram made = make_program(needs);
    const std::optional<double> cheapest = EveryNumber(made).cheapest();
    const Plan plan = allocate(needs);
    ASSERT_EQ(plan.is_possible(), cheapest.has_value()) << "case " << i;
    EXPECT_TRUE(plan.is_exact) << "case " << i;
    if (!cheapest) continue;
    ++possible;
    ASSERT_NEAR(plan.cost, *cheapest, 1e-6 * (1 + *cheapest)) << "case " << i;
    // Group by group it is a plan too, and its bound is one.
    const IntegerAnswer by_groups = solve_by_groups(made.program);
    ASSERT_EQ(by_groups.state, IntegerAnswer::State::kFound) << "case " << i;
    ASSERT_TRUE(keeps_rows(made.program, by_groups.values)) << "case " << i;
    ASSERT_LE(by_groups.bound, *cheapest + 1e-6 * (1 + *cheapest)) << "case " << i;
  }
  EXPECT_GT(possible, cases / 4);
  EXPECT_LT(possible, cases);
}

// 0.03 is wanted; docs/performance.md says what was measured.
constexpr double kLargeGapMax = 0.15;

TEST(AllocationTest, LargeFleetsComeNearTheBound) {
  const int cases = std::getenv("PELTON_FULL") != nullptr ? 100 : 4;
  double worst = 0;
  double sum = 0;
  for (int i = 0; i < cases; ++i) {
    const FleetNeeds needs = random_large_needs(static_cast<uint64_t>(i), 50, 20, 10);
    const AllocationProgram made = make_program(needs);
    ASSERT_GT(made.columns.size(), kExactColumnsMax);
    const Plan plan = allocate(needs);
    ASSERT_TRUE(plan.is_possible()) << "case " << i;
    const double gap = (plan.cost - plan.bound) / plan.cost;
    worst = std::max(worst, gap);
    sum += gap;
    EXPECT_GE(gap, -1e-9) << "case " << i;
    EXPECT_LE(gap, kLargeGapMax) << "case " << i;
  }
  RecordProperty("worst_gap", fmt::format("{}", worst));
  fmt::print("gap to the bound: mean {:.4f}, worst {:.4f}\n", sum / cases, worst);
}

}  // namespace
}  // namespace pelton::capacity
