#include "capacity/availability.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "capacity/capacity_file.h"
#include "capacity/test_needs.h"

namespace pelton::capacity {
namespace {

// Half of 8 requests/s on either side, and no more.
FleetNeeds two_regions_without_spare(double start_s) {
  FleetNeeds needs = two_zones();
  needs.entries[1].region = "us";
  for (Entry& entry : needs.entries) {
    entry.quota = 8;
    entry.lead_p90_s = 0;
  }
  needs.demands[0].rate = 8;
  needs.survive = {};
  needs.running = {{"cheap", "m-on-g", 1}, {"dear", "m-on-g", 1}};
  needs.faults = {.start_s = start_s,
                  .replica_mtbf_days = 0,
                  .machine_mtbf_days = 0,
                  .zone_mtbf_days = 0,
                  .region_mtbf_days = 60,
                  .spot_mtbf_days = 0,
                  .common_modes = {}};
  return needs;
}

double per_incident(const FleetNeeds& needs) {
  const Availability found = availability_of(needs, running_plan(needs), Standing::kFixed);
  return found.downtime_s;  // two regions, each once in two months: one incident a month
}

// The arithmetic of two regions that serve half each: 17.5 s an incident, 14 of which are within
// 99.99 %; 152.5 s where a start takes 300 s, 1.7 of which are.
TEST(AvailabilityTest, TwoRegionsWithoutSpare) {
  EXPECT_NEAR(per_incident(two_regions_without_spare(30)), 17.5, 1e-9);
  EXPECT_NEAR(per_incident(two_regions_without_spare(300)), 152.5, 1e-9);
  const FleetNeeds needs = two_regions_without_spare(30);
  const Availability found = availability_of(needs, running_plan(needs), Standing::kFixed);
  EXPECT_NEAR(found.budget_s(), 259.2, 1e-9);
  EXPECT_EQ(static_cast<int>(found.budget_s() / 17.5), 14);
  EXPECT_NEAR(found.share(), 1 - 17.5 / (30 * 86'400), 1e-12);
  ASSERT_EQ(found.terms.size(), 2U);
  EXPECT_EQ(found.terms[0].cause, "region a/eu");
  EXPECT_NEAR(found.terms[0].share, 0.5, 1e-12);
  EXPECT_NEAR(found.terms[0].deficit, 0.5, 1e-12);
}

// R regions survive one loss at a load of (R - 1) / (R (1 - b)): at it nothing is missing, beyond
// it something is.
TEST(AvailabilityTest, TheLoadThatSurvivesALoss) {
  for (const int regions : {2, 3, 4}) {
    for (const double sheddable : {0.0, 0.2}) {
      FleetNeeds needs = two_regions_without_spare(30);
      needs.faults.sheddable_share = sheddable;
      const Entry one = needs.entries[0];
      needs.entries.clear();
      needs.running.clear();
      for (int r = 0; r < regions; ++r) {
        needs.entries.push_back(one);
        needs.entries.back().name = needs.entries.back().region = fmt::format("r{}", r);
        needs.running.push_back({fmt::format("r{}", r), "m-on-g", 1});
      }
      const double capacity = 4.0 * regions;
      const double load = (regions - 1) / (regions * (1 - sheddable));
      needs.demands[0].rate = capacity * load;
      const auto deficit = [&] {
        const Availability found = availability_of(needs, running_plan(needs), Standing::kFixed);
        double most = 0;
        for (const DowntimeTerm& term : found.terms) {
          if (term.cause.starts_with("region")) most = std::max(most, term.deficit);
        }
        return most;
      };
      EXPECT_NEAR(deficit(), 0, 1e-9) << regions << " " << sheddable;
      needs.demands[0].rate *= 1.01;
      EXPECT_GT(deficit(), 0.005) << regions << " " << sheddable;
    }
  }
}

// Who may be served in one region only cannot use what the other one has left.
TEST(AvailabilityTest, SpareThatResidencyForbidsIsNone) {
  FleetNeeds needs = two_regions_without_spare(30);
  needs.entries[0].residency = {"eu"};
  needs.entries[1].residency = {"us"};
  needs.running[1].replicas = 4;
  needs.demands = {{.model = "m", .residency = {"eu"}, .rate = 4},
                   {.model = "m", .residency = {}, .rate = 4}};
  const Availability found = availability_of(needs, running_plan(needs), Standing::kFixed);
  const auto eu = std::ranges::find(found.terms, "region a/eu", &DowntimeTerm::cause);
  ASSERT_NE(eu, found.terms.end());
  EXPECT_NEAR(eu->deficit, 0.5, 1e-12);  // 4 of 8, though 16 are left
}

TEST(AvailabilityTest, ANoticeIsTimeToGoOnElsewhere) {
  FleetNeeds needs = two_regions_without_spare(30);
  needs.faults.region_mtbf_days = 0;
  needs.entries[0].kind = Kind::kSpot;
  needs.entries[0].reclaim_per_h = 0.1;
  const auto reclaims = [&] {
    const Availability found = availability_of(needs, running_plan(needs), Standing::kFixed);
    const auto at = std::ranges::find_if(
        found.terms, [](const DowntimeTerm& term) { return term.cause.starts_with("reclaim"); });
    return at == found.terms.end() ? 0 : at->downtime_s;
  };
  const double without = reclaims();
  EXPECT_GT(without, 0);
  needs.entries[0].notice_s = 3;
  EXPECT_LT(reclaims(), without);
  needs.entries[0].notice_s = 120;  // longer than a start
  EXPECT_EQ(reclaims(), 0);
}

TEST(AvailabilityTest, WhatToChangeFirst) {
  FleetNeeds needs = two_regions_without_spare(30);
  needs.running.clear();
  needs.faults.common_modes = {{.cause = "release", .per_month = 1, .share = 1, .lasts_s = 600}};
  const Plan plan = allocate(needs);
  const Availability found = availability_of(needs, plan, Standing::kPlanned);
  EXPECT_EQ(found.terms.front().cause, "release");
  ASSERT_FALSE(found.changes.empty());
  EXPECT_EQ(found.changes.front().what, "let release meet 5 % first");
  EXPECT_NEAR(found.changes.front().gained_s, 570, 1e-9);
  const auto spare = std::ranges::find_if(found.changes, [](const AvailabilityChange& one) {
    return one.what.find("any one region") != std::string::npos;
  });
  ASSERT_NE(spare, found.changes.end());
  EXPECT_GT(spare->per_hour, 0);
  // And so it is: the plan that keeps all misses nothing when a region is lost.
  FleetNeeds other = needs;
  other.survive_share = 1;
  other.survive = {Domain::kRegion};
  const Availability better = availability_of(other, allocate(other), Standing::kPlanned);
  EXPECT_NEAR(found.downtime_s - better.downtime_s, spare->gained_s, 1e-9);
  // Of what stands no other plan is proposed.
  needs.running = {{"cheap", "m-on-g", 2}};
  for (const AvailabilityChange& one :
       availability_of(needs, running_plan(needs), Standing::kFixed).changes) {
    EXPECT_EQ(one.what.find("survive_share"), std::string::npos);
  }
}

TEST(AvailabilityTest, TooFewReplicasAreATermOfTheirOwn) {
  FleetNeeds needs = two_regions_without_spare(30);
  needs.running = {{"cheap", "m-on-g", 1}};
  const Availability found = availability_of(needs, running_plan(needs), Standing::kFixed);
  EXPECT_EQ(found.terms.front().cause, "too few replicas");
  EXPECT_NEAR(found.terms.front().downtime_s, 0.5 * kMonthSeconds, 1e-6);
  EXPECT_LE(found.downtime_s, kMonthSeconds);
}

TEST(AvailabilityTest, TheFileSaysHowOften) {
  const std::string fleet = R"(
[[capacity]]
name = "a"
provider = "p"
region = "eu"
machine = "g"
price_per_hour = 1
quota = 4
[[variant]]
name = "v"
model = "m"
machine = "g"
rate = 4
[[demand]]
model = "m"
rate = 4
)";
  const Result<FleetNeeds> read = parse_needs(
      "[availability]\nobjective = 0.999\nzone_mtbf_days = 0\n[[common_mode]]\ncause = "
      "\"release\"\n"
      "per_month = 2\nshare = 0.25\nlasts_s = 60\n" +
          fleet,
      "f");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->faults.objective, 0.999);
  EXPECT_EQ(read->faults.zone_mtbf_days, 0);
  ASSERT_EQ(read->faults.common_modes.size(), 1U);
  EXPECT_EQ(read->faults.common_modes[0].share, 0.25);
  for (const char* const bad :
       {"availability = 1\n", "[availability]\nobjektive = 1\n", "[availability]\ndetect_s = -1\n",
        "[availability]\nzone_mtbf_days = nan\n", "[availability]\nzone_mtbf_days = 1e-9\n",
        "[availability]\nobjective = 2\n", "[[common_mode]]\ncause = \"a\"\n",
        "[[common_mode]]\ncause = \"a\"\nper_month = 1\n[[common_mode]]\ncause = \"A\"\nper_month "
        "= 1\n"}) {
    EXPECT_FALSE(parse_needs(bad + fleet, "f").ok()) << bad;
  }
}

TEST(AvailabilityTest, RandomFleetsKeepTheBounds) {
  int possible = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    FleetNeeds needs = random_small_needs(seed);
    const Plan plan = allocate(needs);
    if (!plan.is_possible()) continue;
    ++possible;
    const Availability found = availability_of(needs, plan, Standing::kPlanned);
    double sum = 0;
    for (const DowntimeTerm& term : found.terms) {
      EXPECT_GE(term.share, 0) << term.cause << " seed " << seed;
      EXPECT_LE(term.share, 1 + 1e-12) << term.cause << " seed " << seed;
      EXPECT_LE(term.deficit, term.share + 1e-9) << term.cause << " seed " << seed;
      sum += term.downtime_s;
    }
    EXPECT_NEAR(found.downtime_s, std::min(sum, kMonthSeconds), 1e-6) << seed;
    for (const AvailabilityChange& one : found.changes) EXPECT_GT(one.gained_s, 0) << seed;
    // Without a demand above what is left nothing is missing, whatever is lost.
    for (Demand& demand : needs.demands) demand.rate = 1e-3;
    Plan ample = plan;
    for (Placement& one : ample.placements) one.replicas += 1000;
    needs.faults.zone_mtbf_days = needs.faults.region_mtbf_days = 0;
    needs.faults.spot_mtbf_days = 0;
    for (const DowntimeTerm& term : availability_of(needs, ample, Standing::kFixed).terms) {
      EXPECT_NEAR(term.deficit, 0, 1e-12) << term.cause << " seed " << seed;
    }
  }
  EXPECT_GT(possible, 50);
}

}  // namespace
}  // namespace pelton::capacity
