#include "simulator/scenario.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/fault.h"
#include "simulator/published_tables.h"
#include "workload/spec.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
  const Result<Scenario> scenario = parse_scenario(text, "f");
  return scenario.ok() ? "none" : scenario.error().message;
}

TEST(Scenarios, ThoseCompiledInSayWhereTheirFiguresComeFrom) {
  const std::vector<Scenario> all = built_in_scenarios();
  EXPECT_GE(all.size(), 8u);
  for (const Scenario& one : all) {
    SCOPED_TRACE(one.name);
    EXPECT_FALSE(one.source.empty());
    EXPECT_FALSE(one.published.empty());
    EXPECT_FALSE(one.assumed.empty());
    if (!one.table.empty()) {
      const auto known = table_factors();
      EXPECT_TRUE(std::ranges::any_of(
          known, [&](const TableFactors& factors) { return factors.instance == one.table; }));
      continue;
    }
    if (!one.workload) {  // then its flags have the load
      EXPECT_FALSE(one.fronts.empty());
      continue;
    }
    const auto spec = workload::parse_spec(*one.workload, one.name);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    if (one.faults) {
      EXPECT_TRUE(parse_faults(*one.faults, {.replicas = 1}, one.name).ok());
    }
  }
}

// 12 031 requests with 145 M tokens in and 4.1 M out, of which 36.6 % could be found again at best.
TEST(Scenarios, TheOneOfMooncakesSizeHasItsSize) {
  const Result<Scenario> scenario = find_scenario("mooncake-conversation");
  ASSERT_TRUE(scenario.ok());
  const workload::WorkloadSpec spec = *workload::parse_spec(*scenario->workload, "mooncake");
  ASSERT_EQ(spec.dataset, workload::WorkloadSpec::Dataset::kPrefixRepetition);
  const auto count = static_cast<double>(spec.count);
  const workload::PrefixRepetition& lengths = spec.prefixes;
  const double in = count * static_cast<double>(lengths.prefix_tokens + lengths.suffix_tokens);
  const double shared = (count - static_cast<double>(lengths.prefix_count)) *
                        static_cast<double>(lengths.prefix_tokens);
  EXPECT_EQ(spec.count, 12'031);
  EXPECT_NEAR(in / 145e6, 1, 0.01);
  EXPECT_NEAR(count * static_cast<double>(lengths.output_tokens) / 4.1e6, 1, 0.02);
  EXPECT_NEAR(shared / in, 0.366, 0.005);
  const Result<std::vector<double>> at_s = workload::arrival_times(spec.arrivals, spec.count);
  ASSERT_TRUE(at_s.ok());
  EXPECT_NEAR(at_s->back() / 60, 59, 1);
}

TEST(Scenarios, AFileIsReadWhole) {
  const Result<Scenario> scenario = parse_scenario(R"(
title = "a"
model = "m"
efficiency = {bandwidth = 0.5}
faults = [{kind = "crash", replica = 1, at_s = 3, until_s = 4.5}]
compare = {figure = "output_throughput", value = 10}
[flags]
gpu = "h100"
replicas = 3
zone-distance = 1.5
no-noise = true
[workload]
spikes = [{at_s = 1, for_s = 2, rps = 3}]
rate = 1
[scale]
max = 7
scale_down_delay = 120
[sweep]
flag = "start-seconds"
values = [5, 7.5]
)",
                                                   "f");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_EQ(scenario->flags,
            (std::vector<std::pair<std::string, std::string>>{{"--gpu", "h100"},
                                                              {"--replicas", "3"},
                                                              {"--zone-distance", "1.5"},
                                                              {"--no-noise", "true"}}));
  EXPECT_EQ(scenario->bandwidth, 0.5);
  EXPECT_FALSE(scenario->compute);
  EXPECT_EQ(parse_faults(*scenario->faults, {.replicas = 2}, "f")->front().until_s, 4.5);
  EXPECT_EQ(workload::parse_spec(*scenario->workload, "f")->arrivals.spikes.front().rps, 3);
  EXPECT_EQ(scenario->scaling->policy.replicas_max, 7);
  EXPECT_EQ(scenario->scaling->policy.scale_down_delay_s, 120);
  EXPECT_EQ(scenario->sweep->flag, "--start-seconds");
  EXPECT_EQ(scenario->sweep->values, (std::vector<double>{5, 7.5}));
  EXPECT_EQ(scenario->compared->value, 10);
}

TEST(Scenarios, WhatIsNoneIsRefusedWithItsLine) {
  EXPECT_THAT(refusal(""), HasSubstr("f:1: 'title' is missing"));
  EXPECT_THAT(refusal("title = 'a'"), HasSubstr("needs a 'model' or a 'table'"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\ntable = 't'"), HasSubstr("one of them"));
  EXPECT_THAT(refusal("title = 'a'\nmodle = 'm'"), HasSubstr("did you mean 'model'"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\n[scale]\nscale_down_dely = 3"),
              HasSubstr("did you mean 'scale_down_delay'"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\n[scale]\nmin = 5\nmax = 4"),
              HasSubstr("f:4: the scenario: 'scale': 'min' (5) is more than 'max' (4)"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\n[flags]\nscenario = 'b'"),
              HasSubstr("has no place in a scenario"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\n[flags]\ngpu = ['b']"),
              HasSubstr("f:4: flags: 'gpu' must be a number"));
  const std::string sweep = "title = 'a'\nmodel = 'm'\n[sweep]\nflag = 'x'\n";
  EXPECT_THAT(refusal(sweep), HasSubstr("'values' must be a list of 1 to 64 numbers"));
  EXPECT_THAT(refusal(sweep + "values = [2, 1]"), HasSubstr("must rise"));
  EXPECT_THAT(refusal(sweep + "values = [1, nan]"), HasSubstr("finite"));
  EXPECT_THAT(refusal(sweep + "values = ['1']"), HasSubstr("finite numbers only"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\n[workload]\nat = 2026-11-28"),
              HasSubstr("f:4: dates"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\nworkload = 3"), HasSubstr("must be a table"));
  EXPECT_THAT(refusal("title = 'a'\nmodel = 'm'\nefficiency = {compute = 0}"),
              HasSubstr("'compute' must be a number from 0.001 to 1"));
}

TEST(Scenarios, TheNearestNameIsNamed) {
  const Result<Scenario> scenario = find_scenario("spikes");
  ASSERT_FALSE(scenario.ok());
  EXPECT_THAT(scenario.error().message, HasSubstr("did you mean 'spike'?"));
  EXPECT_FALSE(find_scenario("./nothing.toml").ok());
  EXPECT_EQ(find_scenario("spike")->model, "gpt-oss-20b");
}

}  // namespace
}  // namespace pelton::simulator
