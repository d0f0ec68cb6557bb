// The shipped autoscaler over a fleet whose requests are split: both roles in one decision.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/facts_log.h"
#include "base/random.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

// 20 ms a step, 2 ms a row and, unless it says otherwise, 1 ms a token: a prompt of 1000 takes a
// second, and 16 answers have a token each in 68 ms.
cost_model::StepTimeModel slow_times(double token_s = 1e-3) {
  cost_model::Hardware hardware = *cost_model::find_hardware("h100");
  hardware.bytes_per_second = 1e18;
  hardware.rates[cost_model::Arithmetic::kBf16] = 1e30;
  return *cost_model::StepTimeModel::make({.hardware = hardware,
                                           .shape = *cost_model::find_model_config("gpt-oss-20b"),
                                           .efficiency = {.bandwidth = 1,
                                                          .compute = 1,
                                                          .attention = 1,
                                                          .step_s = 20e-3,
                                                          .token_s = token_s,
                                                          .row_s = 2e-3}});
}

autoscaler::PoolPolicy roles_policy(int most) {
  return {.rule = autoscaler::PoolPolicy::Rule::kSlo,
          .slo = {.first_token_s = 3, .gap_s = 0.06, .percentile = 0.9},
          .replicas_min = 1,
          .replicas_max = most,
          .window_s = 20,
          .scale_down_delay_s = 20,
          .idle_to_zero_s = 60,
          .prefill = {{.replicas_min = 1, .replicas_max = most}}};
}

SimulationOptions roles_fleet(const autoscaler::PoolPolicy& policy, double start_s = 5) {
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full", .block_bytes = 1000}, {3000, 3000, 0}},
                 {{.name = "window", .sliding_window = 128, .block_bytes = 1000}, {1000, 1000, 0}}},
      .sequences_max = 16,
      .batch_tokens_max = 256,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.replica.paths.link = {.bytes_per_s = 1e9, .latency_s = 1e-5};
  options.dispatch = Dispatcher::Policy::kCost;
  options.split = {.mode = gateway::SplitConfig::Mode::kAlways};
  options.answers_go_on = true;
  options.autoscaling = Autoscaling{.policy = policy, .start_s = start_s, .prefill_replicas = 1};
  options.seed = 5;
  return options;
}

// Requests that come at random, so many a second.
struct Phase {
  double until_s = 0;
  double rate = 0;
  int prompt = 0;
  int output = 0;
};
workload::Workload load(const std::vector<Phase>& phases, uint64_t seed = 1) {
  workload::Workload made;
  double at_s = 0;
  uint64_t draws = 0;
  for (const Phase& phase : phases) {
    while (phase.rate > 0) {
      const double gap_s = -std::log1p(-base::random_unit(seed, draws++)) / phase.rate;
      if (at_s + gap_s > phase.until_s) break;
      at_s += gap_s;
      made.at_s.push_back(at_s);
      made.conversations.emplace_back().turns.push_back(
          {.prompt = fmt::format("{} {}", seed, made.at_s.size()),
           .prompt_tokens = phase.prompt,
           .output_tokens = phase.output});
    }
    at_s = phase.until_s;
  }
  return made;
}

SimulationResult run(const SimulationOptions& options, const workload::Workload& workload,
                     double token_s = 1e-3) {
  const cost_model::StepTimeModel times = slow_times(token_s);
  Result<SimulationResult> result = simulate(options, workload, times);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

int64_t failed(const SimulationResult& result) {
  return std::ranges::count_if(result.records, [](const auto& record) { return !record.ok; });
}

autoscaler::PairCounts desired_at(const SimulationResult& result, double at_s) {
  autoscaler::PairCounts counts;
  for (const ScalingSample& sample : result.scaling->history.samples()) {
    if (sample.at_s > at_s) break;
    counts = {.prefill = sample.prefill_desired, .decode = sample.desired - sample.prefill_desired};
  }
  return counts;
}

// Of requests that came within: what so many of a hundred waited at most.
struct Late {
  double first_token_s = 0;
  double gap_s = 0;
};
Late late(const SimulationResult& result, double from_s, double to_s, double percentile) {
  std::vector<double> first;
  std::vector<double> gaps;
  for (const report::RequestRecord& record : result.records) {
    const double due_s = static_cast<double>(record.due_ns) * 1e-9;
    if (due_s < from_s || due_s >= to_s) continue;
    first.push_back(static_cast<double>(record.first_byte_ns - record.due_ns) * 1e-9);
    for (size_t i = 1; i < record.pieces.size(); ++i) {
      gaps.push_back(static_cast<double>(record.pieces[i].at_ns - record.pieces[i - 1].at_ns) *
                     1e-9);
    }
  }
  const auto at = [&](std::vector<double>& values) {
    if (values.empty()) return 0.0;
    const auto place = static_cast<size_t>(percentile * static_cast<double>(values.size() - 1));
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(place));
    return values[place];
  };
  return {.first_token_s = at(first), .gap_s = at(gaps)};
}

std::string steps_of(const SimulationResult& result) {
  std::string text;
  for (const ScalingStep& step : result.scaling->history.steps()) {
    text += fmt::format("{:.0f} {}\n", step.at_s, step.text);
  }
  return text;
}

TEST(AutoscalingSplit, PromptsThatGrowEightTimesMakeOneRoleGrow) {
  const SimulationResult result =
      run(roles_fleet(roles_policy(64)), load({{60, 4, 250, 40}, {180, 4, 2000, 40}}));
  EXPECT_EQ(failed(result), 0);
  const autoscaler::PairCounts before = desired_at(result, 58);
  const autoscaler::PairCounts after = desired_at(result, 150);
  EXPECT_GE(after.prefill, 4 * before.prefill) << steps_of(result);
  EXPECT_EQ(after.decode, before.decode) << steps_of(result);
  EXPECT_GT(result.travel.handed_over, 600);
  // Once what was ordered has come the objective holds again.
  const Late end = late(result, 120, 175, 0.9);
  EXPECT_LE(end.first_token_s, 3);
  EXPECT_LE(end.gap_s, 0.06);
}

TEST(AutoscalingSplit, ToZeroAndBackWithoutAnError) {
  autoscaler::PoolPolicy policy = roles_policy(32);
  policy.replicas_min = 0;
  policy.prefill->replicas_min = 0;
  SimulationOptions options = roles_fleet(policy);
  options.autoscaling->replicas = options.autoscaling->prefill_replicas = 0;
  options.duration_s = 700;
  const SimulationResult result = run(options, load({{80, 5, 1000, 40},   // both
                                                     {260, 1, 100, 40},   // one is enough
                                                     {330, 5, 1000, 40},  // both again
                                                     {560, 0},            // nobody
                                                     {640, 5, 1000, 40}}));
  EXPECT_EQ(failed(result), 0);
  EXPECT_EQ(result.unfinished, 0);
  EXPECT_EQ(desired_at(result, 1).decode, 1);
  EXPECT_GT(desired_at(result, 75).prefill, 3) << steps_of(result);
  EXPECT_EQ(desired_at(result, 255).prefill, 0) << steps_of(result);
  EXPECT_LE(desired_at(result, 255).decode, 2) << "they serve whole requests";
  EXPECT_GT(desired_at(result, 325).prefill, 3);
  EXPECT_EQ(desired_at(result, 550), autoscaler::PairCounts{}) << steps_of(result);
  EXPECT_GT(desired_at(result, 635).prefill, 3);
}

// What either role is late by is the same factor as it is computed (prefill_decode_play_test.cc).
// Here those that go on also compute the end of each prompt, in steps of their own, which the
// arithmetic leaves out: their gaps are later by a third.
TEST(AutoscalingSplit, AtACeilingNeitherIsLateForTheOthersSake) {
  constexpr double kToken_s = 1e-4;
  std::vector<double> ratios;
  const int seeds = std::getenv("PELTON_FULL") != nullptr ? 3 : 1;
  for (int seed = 1; seed <= seeds; ++seed) {
    autoscaler::PoolPolicy policy = roles_policy(100);
    policy.slo = {.first_token_s = 0.6, .gap_s = 0.04, .percentile = 0.5};
    policy.gpus_each = 1;
    const workload::Workload some = load({{80, 20, 4000, 60}}, static_cast<uint64_t>(seed));
    SimulationOptions options = roles_fleet(policy, 1);
    options.replica.checks = false;
    options.replica.capacity.batch_tokens_max = 1024;
    options.replica.capacity.context_tokens_max = 8192;
    options.replica.capacity.groups[0].block_counts = {6000, 6000, 0};
    const autoscaler::PairCounts needed = desired_at(run(options, some, kToken_s), 70);
    policy.gpus_max = (needed.prefill + needed.decode) * 85 / 100;
    options.autoscaling->policy = policy;
    // Nothing has piled up before: what is late is late for want of replicas.
    options.autoscaling->prefill_replicas = needed.prefill * 85 / 100;
    options.autoscaling->replicas = *policy.gpus_max - options.autoscaling->prefill_replicas;
    const SimulationResult result = run(options, some, kToken_s);
    EXPECT_EQ(failed(result), 0);
    const autoscaler::PairCounts had = desired_at(result, 70);
    EXPECT_EQ(had.prefill + had.decode, *policy.gpus_max);
    const Late measured = late(result, 40, 78, policy.slo.percentile);
    const double first = measured.first_token_s / *policy.slo.first_token_s;
    const double gap = measured.gap_s / *policy.slo.gap_s;
    ratios.push_back(first / gap);
    RecordProperty(fmt::format("seed_{}", seed),
                   fmt::format("needed {}+{}, had {}+{}, late {:.3f} and {:.3f}", needed.prefill,
                               needed.decode, had.prefill, had.decode, first, gap));
  }
  for (const double ratio : ratios) {
    EXPECT_GT(ratio, 0.65) << fmt::format("{}", fmt::join(ratios, " "));
    EXPECT_LT(ratio, 1.2);
  }
}

// Either role's die under load, and whoever takes their place is ordered for that role.
TEST(AutoscalingSplit, WhoeverDiesIsReplacedAndNothingIsLost) {
  for (const int victim : {0, 32}) {
    SimulationOptions options = roles_fleet(roles_policy(32));
    options.faults = {{.kind = Fault::Kind::kCrash, .replica = victim, .at_s = 40, .until_s = 41}};
    const SimulationResult result = run(options, load({{90, 4, 1000, 40}}));
    EXPECT_EQ(failed(result), 0);
    EXPECT_GT(result.redispatched, 0) << victim;
    EXPECT_GE(desired_at(result, 85).prefill, 1);
  }
}

// What is recorded of a fleet of two roles is decided again to the byte.
TEST(AutoscalingSplit, RecordedFactsAreDecidedAgainToTheByte) {
  std::string lines;
  autoscaler::PoolPolicy policy = roles_policy(32);
  policy.replicas_min = 0;
  policy.gpus_each = 2;
  policy.gpus_max = 20;
  SimulationOptions options = roles_fleet(policy);
  options.autoscaling->record = [&](std::string_view line) { lines += std::string(line) + "\n"; };
  options.autoscaling->pool = "box";
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 0, .at_s = 40, .until_s = 41}};
  options.duration_s = 260;
  const SimulationResult result = run(options, load({{60, 4, 500, 40}, {100, 8, 1500, 40}}));
  EXPECT_EQ(failed(result), 0);
  EXPECT_THAT(lines, HasSubstr("\"pool\":\"box:prefill\""));
  autoscaler::FactsReplay replay;
  int decisions = 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    const auto outcome = replay.feed(std::string_view(lines).substr(at, end - at));
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_TRUE(outcome->is_equal) << outcome->line;
    decisions += outcome->is_decision ? 1 : 0;
    at = end + 1;
  }
  EXPECT_GT(decisions, 200);
}

TEST(AutoscalingSplit, WhatItNeedsIsSaid) {
  const workload::Workload some = load({{1, 1, 100, 10}});
  const auto refused = [&](const SimulationOptions& options) {
    return simulate(options, some, slow_times()).error().field;
  };
  SimulationOptions options = roles_fleet(roles_policy(4));
  options.split.mode = gateway::SplitConfig::Mode::kOff;
  EXPECT_EQ(refused(options), "split");
  options = roles_fleet(roles_policy(4));
  options.autoscaling->policy.prefill.reset();
  options.autoscaling->prefill_replicas = 0;
  EXPECT_EQ(refused(options), "split");
  options = roles_fleet(roles_policy(4));
  options.autoscaling->prefill_replicas = 5;
  EXPECT_EQ(refused(options), "prefill_replicas");
}

}  // namespace
}  // namespace pelton::simulator
