// Years at the fluid fidelity: what goes wrong is counted where it was caused, and what is left out
// is missing from it.
#include "simulator/fluid_year.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/fluid_fleet.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

constexpr double kDay_s = 86'400;

cost_model::StepTimeModel l4_times() {
  return *cost_model::StepTimeModel::make({.hardware = *cost_model::find_hardware("l4"),
                                           .shape = *cost_model::find_model_config("gpt-oss-20b")});
}

YearOptions a_year(int replicas) {
  YearOptions year;
  year.fleet.replica.capacity = {
      .groups = {{{.name = "full"}, {4096}}, {{.name = "window", .sliding_window = 128}, {1024}}},
      .sequences_max = 16,
      .batch_tokens_max = 2048,
      .context_tokens_max = 16'384,
      .vocab_size = 1000};
  year.fleet.autoscaling =
      Autoscaling{.policy = {.replicas_min = replicas, .replicas_max = replicas},
                  .start_s = 120,
                  .replicas = replicas,
                  .tick_s = 60};
  year.fleet.autoscaling->policy.concurrency_target = 16;
  year.arrivals = {.rate = 0.8 * replicas};
  year.classes = {{.prompt = 200, .computed = 200, .output = 150}};
  year.duration_s = 10 * kDay_s;
  year.tick_s = 30;
  year.late_s = 5;
  year.zones = 2;
  return year;
}

const CauseShare* find(const YearResult& result, const std::string& cause) {
  const auto found = std::ranges::find(result.causes, cause, &CauseShare::cause);
  return found == result.causes.end() ? nullptr : &*found;
}

// Nobody is late in a fleet that is large enough, and as much is served as came.
TEST(FluidYear, WithoutFaultsEverybodyIsServed) {
  const YearResult result = *simulate_year(a_year(4), l4_times());
  EXPECT_GT(result.requests, 0.99 * 3.2 * 10 * kDay_s);
  EXPECT_EQ(result.availability, 1);
  EXPECT_NEAR(result.figures.output_tokens_per_s, 3.2 * 150, 3.2 * 150 * 0.01);
  EXPECT_NEAR(result.figures.replica_hours, 4 * 24 * 10, 1);
}

// What a death of one of ten replicas costs, by hand: its share of what is being answered.
TEST(FluidYear, AReplicasDeathLosesWhatItAnswered) {
  YearOptions year = a_year(10);
  year.faults = {{.cause = "replica", .scope = FaultRate::Scope::kReplica, .mtbf_s = kDay_s / 1.2}};
  const YearResult result = *simulate_year(year, l4_times());
  const CauseShare* const replica = find(result, "replica");
  ASSERT_NE(replica, nullptr);
  EXPECT_NEAR(static_cast<double>(replica->incidents), 120, 45);  // 10 of them, 10 days, 1.2 a day
  EXPECT_GT(result.figures.lost, 0);
  const double each =
      static_cast<double>(result.figures.lost) / static_cast<double>(replica->incidents);
  // Rate x time in service, of one replica: no more than its slots.
  EXPECT_GT(each, 2);
  EXPECT_LE(each, 16);
}

// The availability without the cause that cost most is higher by what that one cost.
TEST(FluidYear, WithoutTheLargestTermAvailabilityRisesByIt) {
  YearOptions year = a_year(10);
  year.faults = {
      {.cause = "replica", .scope = FaultRate::Scope::kReplica, .mtbf_s = 8 * kDay_s},
      {.cause = "zone", .scope = FaultRate::Scope::kZone, .mtbf_s = kDay_s, .down_s = 600}};
  double with = 0;
  double without = 0;
  double term = 0;
  constexpr int kSeeds = 4;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    year.fleet.seed = seed;
    const YearResult result = *simulate_year(year, l4_times());
    EXPECT_EQ(result.causes.front().cause, "zone");
    with += result.availability / kSeeds;
    term += result.causes.front().share / kSeeds;
    YearOptions other = year;
    std::erase_if(other.faults, [](const FaultRate& one) { return one.cause == "zone"; });
    without += simulate_year(other, l4_times())->availability / kSeeds;
  }
  ASSERT_GT(term, 0);
  EXPECT_NEAR(without, with + term, 0.15 * term);
}

// Each region bears the other's load as well: what is lost is what its clients sent before they
// knew, and what it was answering.
TEST(FluidYear, ALostRegionsRequestsGoToTheOther) {
  YearOptions year = a_year(8);
  year.arrivals.rate = 6;  // of both
  year.regions = 2;
  year.failover_s = 5;
  year.faults = {{.cause = "region",
                  .scope = FaultRate::Scope::kRegion,
                  .mtbf_s = 5 * kDay_s,
                  .down_s = 1800}};
  const YearResult result = *simulate_year(year, l4_times());
  EXPECT_NEAR(result.requests, 6 * 10 * kDay_s, 0.01 * 6 * 10 * kDay_s);
  const CauseShare* const region = find(result, "region");
  ASSERT_NE(region, nullptr);
  EXPECT_GT(region->incidents, 2);
  const double each = region->requests / static_cast<double>(region->incidents);
  EXPECT_GT(each, 3 * 5 * 0.8);  // at 3 a second
  EXPECT_LT(each, 3 * 5 + 8 * 16 + 30);
  // With one region alone all is lost for as long as it is away.
  year.regions = 1;
  const YearResult alone = *simulate_year(year, l4_times());
  const CauseShare* const all = find(alone, "region");
  EXPECT_GT(all->requests / static_cast<double>(all->incidents), 0.9 * 6 * 1800);
  // Where the other one has no room it shows.
  year.regions = 2;
  year.fleet.autoscaling->policy.replicas_min = year.fleet.autoscaling->policy.replicas_max = 1;
  year.fleet.autoscaling->replicas = 1;
  const YearResult tight = *simulate_year(year, l4_times());
  EXPECT_EQ(find(tight, "region")->incidents, region->incidents);
  EXPECT_GT(find(tight, "region")->share, 10 * region->share)
      << tight.figures.needed_hours / 24 / 10 << " replicas are needed, "
      << find(tight, "load")->share;
}

// Half a day apart, so that of a day's swing nothing is left of both together.
TEST(FluidYear, RegionsHaveTheirDaysAtOtherHours) {
  YearOptions year = a_year(4);
  year.arrivals.day = {.swing = 0.9, .period_s = kDay_s};
  year.duration_s = 365 * 600;  // parts of ten minutes
  year.regions = 2;
  const YearResult result = *simulate_year(year, l4_times());
  const std::vector<double>& parts = result.timeline.requests;
  const auto [least, most] = std::ranges::minmax(parts);
  EXPECT_LT(most, 1.3 * least);
  year.regions = 1;
  const YearResult alone = *simulate_year(year, l4_times());
  const auto [night, noon] = std::ranges::minmax(alone.timeline.requests);
  EXPECT_GT(noon, 5 * night);
}

TEST(FluidYear, OneSeedIsOneYear) {
  YearOptions year = a_year(3);
  year.duration_s = 3 * kDay_s;
  year.faults = {{.cause = "replica", .scope = FaultRate::Scope::kReplica, .mtbf_s = kDay_s}};
  const YearResult one = *simulate_year(year, l4_times());
  const YearResult same = *simulate_year(year, l4_times());
  EXPECT_EQ(one.availability, same.availability);
  EXPECT_EQ(one.figures.lost, same.figures.lost);
  year.fleet.seed = 1;
  EXPECT_NE(simulate_year(year, l4_times())->figures.lost, one.figures.lost);
}

TEST(FluidYear, WhatIsNotModelledIsRefusedByName) {
  YearOptions year = a_year(2);
  year.fleet.clients.retries_max = 1;
  EXPECT_THAT(simulate_year(year, l4_times()).error().message, HasSubstr("--client-retries"));
  year = a_year(2);
  year.fleet.autoscaling.reset();
  EXPECT_THAT(simulate_year(year, l4_times()).error().message, HasSubstr("scaled"));
  year = a_year(2);
  year.fleet.concurrency_max = 4;
  EXPECT_THAT(simulate_year(year, l4_times()).error().message, HasSubstr("--max-concurrency"));
  year = a_year(2);
  ASSERT_FALSE(year.fleet.replica.capacity.groups.empty());
  year.fleet.replica.capacity.groups[0].block_counts[kv::kHost] = 9;
  EXPECT_THAT(simulate_year(year, l4_times()).error().message, HasSubstr("--swap-space"));
  year = a_year(2);
  year.arrivals.rate = std::nan("");
  EXPECT_FALSE(simulate_year(year, l4_times()).ok());
}

TEST(FaultRates, BadOnesAreRefused) {
  const auto parse = [](const char* text) { return parse_fault_rates(*Json::parse(text), "test"); };
  EXPECT_TRUE(parse(R"([{"cause": "a", "of": "zone", "mtbf_s": 100, "down_s": 5}])").ok());
  for (const char* const text :
       {R"({})", R"([1])", R"([{"cause": "a"}])", R"([{"cause": "a", "mtbf_s": -1}])",
        R"([{"cause": "a", "mtbf_s": 9, "of": "planet"}])", R"([{"mtbf_s": 9}])",
        R"([{"cause": "a", "mtbf_s": 9, "share": 2}])", R"([{"cause": "a", "mtbf_s": 9, "x": 1}])",
        // Of a wrong kind: each would be its default.
        R"([{"cause": "a", "mtbf_s": 9, "share": "half"}])",
        R"([{"cause": "a", "mtbf_s": 9, "down_s": "3600"}])",
        R"([{"cause": "a", "mtbf_s": 9, "even": 1}])",
        R"([{"cause": "a", "mtbf_s": 9, "of": 3}])"}) {
    EXPECT_FALSE(parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pelton::simulator
