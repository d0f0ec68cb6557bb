// The shipped autoscaler over simulated replicas that take time to start.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/facts_log.h"
#include "report/summary.h"
#include "simulator/even_steps.h"
#include "simulator/fluid_fleet.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

SimulationOptions scaled_fleet(Autoscaling asked) {
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {2000}}, {{.name = "window", .sliding_window = 128}, {1000}}},
      .sequences_max = 8,
      .batch_tokens_max = 256,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.autoscaling = asked;
  return options;
}

// A request each `1 / rate` seconds between the moments, one rate after the other.
struct Phase {
  double until_s;
  double rate;
};
workload::Workload load(const std::vector<Phase>& phases) {
  workload::Workload made;
  double at_s = 0;
  for (const Phase& phase : phases) {
    for (; phase.rate > 0 && at_s < phase.until_s; at_s += 1 / phase.rate) {
      made.at_s.push_back(at_s);
      workload::Conversation& one = made.conversations.emplace_back();
      one.turns.push_back(
          {.prompt = std::to_string(made.at_s.size()), .prompt_tokens = 20, .output_tokens = 40});
    }
    at_s = std::max(at_s, phase.until_s);
  }
  return made;
}

SimulationResult run(const SimulationOptions& options, const workload::Workload& workload) {
  const cost_model::StepTimeModel times = *even_steps(0.05);  // 40 tokens take 2 s
  Result<SimulationResult> result = simulate(options, workload, times);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

int64_t failed(const SimulationResult& result) {
  return std::count_if(result.records.begin(), result.records.end(),
                       [](const report::RequestRecord& record) { return !record.ok; });
}

// Replicas say what their steps cost, and what requests were like is counted: as gateways do it.
TEST(Autoscaling, AnObjectiveIsDecidedByWhatWasServed) {
  Autoscaling asked{.policy = {.rule = autoscaler::PoolPolicy::Rule::kSlo,
                               .slo = {.first_token_s = 0.2},
                               .replicas_min = 1,
                               .replicas_max = 16},
                    .start_s = 5};
  const SimulationResult result = run(scaled_fleet(asked), simulator::load({{60, 1}, {600, 10}}));
  EXPECT_EQ(failed(result), 0);
  ASSERT_TRUE(result.scaling);
  std::string texts;
  for (const ScalingStep& step : result.scaling->history.steps()) texts += step.text + "\n";
  EXPECT_THAT(texts, HasSubstr("objective"));
  EXPECT_THAT(texts, HasSubstr("at the percentile"));
  // 20 in service of 8 slots: three replicas would have all of them busy.
  EXPECT_GE(result.scaling->history.samples().back().ready, 3);
  int64_t late = 0;
  int64_t settled = 0;
  for (const report::RequestRecord& one : result.records) {
    if (one.due_ns < 200'000'000'000) continue;
    ++settled;
    late += one.first_byte_ns - one.due_ns > 200'000'000 ? 1 : 0;
  }
  EXPECT_LE(late, settled / 20);
}

// What stands by is woken at once, and costs what others cost.
TEST(Autoscaling, OneThatStandsByServesBeforeAnotherOneIsThere) {
  Autoscaling asked{
      .policy = {.replicas_min = 0, .replicas_max = 4, .standby = 1}, .start_s = 60, .replicas = 0};
  const SimulationResult result = run(scaled_fleet(asked), simulator::load({{100, 0}, {110, 1}}));
  EXPECT_EQ(failed(result), 0);
  for (const report::RequestRecord& one : result.records) {
    EXPECT_LT(one.first_byte_ns - one.due_ns, 3'000'000'000);
  }
  EXPECT_EQ(result.scaling->started, 2) << "itself, and the one that takes its place";
}

TEST(Autoscaling, FollowsALoadThatRisesAndFalls) {
  Autoscaling asked{.policy = {.replicas_min = 1, .replicas_max = 16}, .start_s = 5};
  asked.policy.scale_down_delay_s = 60;
  const workload::Workload load = simulator::load({{200, 1}, {400, 20}, {900, 1}});
  const SimulationResult result = run(scaled_fleet(asked), load);
  EXPECT_EQ(result.records.size(), load.at_s.size());
  EXPECT_EQ(failed(result), 0);
  ASSERT_TRUE(result.scaling);
  // 40 in service of 8 slots each: 5 and what is kept free, and what works off the backlog of 5 s.
  EXPECT_GE(result.scaling->replicas_most, 6);
  EXPECT_LE(result.scaling->replicas_most, 14);
  EXPECT_LE(result.scaling->direction_changes, 3);
  EXPECT_LT(result.scaling->replica_s, 0.5 * result.scaling->replicas_most * result.duration_s);
  // One seed, one run.
  const SimulationResult again = run(scaled_fleet(asked), load);
  EXPECT_EQ(again.events, result.events);
  EXPECT_EQ(again.scaling->replica_s, result.scaling->replica_s);
}

TEST(Autoscaling, ToNothingAndBackWithoutAnError) {
  Autoscaling asked{.policy = {.replicas_min = 0, .replicas_max = 4, .idle_to_zero_s = 60},
                    .start_s = 3,
                    .replicas = 0};
  const workload::Workload load =
      simulator::load({{100, 0}, {130, 0.5}, {600, 0}, {610, 1}, {1500, 0}, {1501, 3}});
  const SimulationResult result = run(scaled_fleet(asked), load);
  EXPECT_EQ(result.records.size(), load.at_s.size());
  EXPECT_EQ(failed(result), 0);
  EXPECT_EQ(result.scaling->started, 3) << "one each time";
  // Awake some 100 s each time, of 1 500.
  EXPECT_LT(result.scaling->replica_s, 400);
  // The first waited for a start, and no longer than that and a tick.
  const report::RequestRecord& first = result.records.front();
  EXPECT_GE(first.first_byte_ns - first.due_ns, 3'000'000'000);
  EXPECT_LT(first.first_byte_ns - first.due_ns, 3'200'000'000);
}

TEST(Autoscaling, ADeadReplicaIsReplaced) {
  Autoscaling asked{.policy = {.replicas_min = 2, .replicas_max = 4}, .start_s = 5, .replicas = 2};
  SimulationOptions options = scaled_fleet(asked);
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 0, .at_s = 30, .until_s = 31}};
  const SimulationResult result = run(options, simulator::load({{120, 3}}));
  EXPECT_GE(result.scaling->started, 1);
  // Those whose answers had begun are errors to their clients; all others are answered elsewhere.
  EXPECT_LE(failed(result), 8);
  EXPECT_EQ(result.unfinished, 0);
}

// In seconds from when each was due.
double first_token_s(const report::RequestRecord& record) {
  return static_cast<double>(record.first_byte_ns - record.due_ns) * 1e-9;
}

TEST(Autoscaling, AStartGoesThroughItsPhases) {
  Autoscaling asked{.policy = {.replicas_min = 0, .replicas_max = 1}, .replicas = 0};
  asked.phases = {{.name = "provision", .seconds = 4}, {.name = "weights", .seconds = 3}};
  SimulationOptions options = scaled_fleet(asked);
  const workload::Workload one = simulator::load({{1, 1}});
  EXPECT_NEAR(first_token_s(run(options, one).records[0]), 7, 0.2);
  // Some take longer, by the seed; half of them less than the median.
  options.autoscaling->phases[0].p90_s = 12;
  int longer = 0;
  int beyond_p90 = 0;
  for (options.seed = 0; options.seed < 200; ++options.seed) {
    const double took_s = first_token_s(run(options, one).records[0]);
    longer += took_s > 7.1 ? 1 : 0;
    beyond_p90 += took_s > 15.1 ? 1 : 0;
  }
  EXPECT_NEAR(longer, 100, 30);
  EXPECT_NEAR(beyond_p90, 20, 14);
}

// An autoscaler that is away orders nothing: the first request waits for it, and for the start.
TEST(Autoscaling, WithoutAnAutoscalerNothingIsDecided) {
  Autoscaling asked{.policy = {.replicas_min = 0, .replicas_max = 1}, .start_s = 5, .replicas = 0};
  SimulationOptions options = scaled_fleet(asked);
  options.faults = {{.kind = Fault::Kind::kAutoscalerDown, .at_s = 0, .until_s = 30}};
  const SimulationResult result = run(options, simulator::load({{1, 1}}));
  EXPECT_EQ(failed(result), 0);
  EXPECT_GE(first_token_s(result.records[0]), 35);
  EXPECT_LE(first_token_s(result.records[0]), 38);
}

// 50 bytes at 10 a second: 5 s for one alone, 10 s for each of two that the place serves together.
TEST(Autoscaling, StartsThatFetchTogetherShareTheBandwidth) {
  Autoscaling asked{.policy = {.replicas_min = 1, .replicas_max = 1}, .replicas = 0};
  asked.phases = {{.name = "provision", .seconds = 4},
                  {.name = "weights", .bytes = 50, .bytes_per_s = 10, .shared_bytes_per_s = 10},
                  {.name = "kernels", .seconds = 1}};
  const workload::Workload one = simulator::load({{1, 1}});
  EXPECT_NEAR(first_token_s(run(scaled_fleet(asked), one).records[0]), 4 + 5 + 1, 0.2);
  asked.policy.replicas_min = asked.policy.replicas_max = 2;
  const SimulationResult shared = run(scaled_fleet(asked), one);
  ASSERT_EQ(shared.scaling->started, 2);
  EXPECT_NEAR(first_token_s(shared.records[0]), 4 + 10 + 1, 0.2);
  asked.phases[1].shared_bytes_per_s = 0;
  const SimulationResult apart = run(scaled_fleet(asked), one);
  EXPECT_NEAR(first_token_s(apart.records[0]), 4 + 5 + 1, 0.2);
  // The other fidelity waits as long.
  asked.phases[1].shared_bytes_per_s = 10;
  const auto fluid = simulate_fluid(scaled_fleet(asked), one, *even_steps(0.05));
  ASSERT_TRUE(fluid.ok()) << fluid.error().message;
  EXPECT_GE(first_token_s(fluid->records[0]), 4 + 10 + 1);
  asked.phases.push_back(asked.phases[1]);
  EXPECT_FALSE(asked.check().ok()) << "two that fetch";
}

TEST(Autoscaling, FaultsOfStartsDelayThem) {
  Autoscaling asked{.policy = {.replicas_min = 0, .replicas_max = 1}, .start_s = 5, .replicas = 0};
  SimulationOptions options = scaled_fleet(asked);
  const workload::Workload one = simulator::load({{1, 1}});
  options.faults = {{.kind = Fault::Kind::kSlowStart, .at_s = 0, .until_s = 9, .factor = 3}};
  EXPECT_NEAR(first_token_s(run(options, one).records[0]), 15, 0.2);
  // 5 s, a failure, at least a second's pause, 5 s.
  options.faults = {{.kind = Fault::Kind::kStartError, .at_s = 0, .until_s = 1, .count = 1}};
  SimulationResult result = run(options, one);
  EXPECT_GE(first_token_s(result.records[0]), 11);
  EXPECT_LE(first_token_s(result.records[0]), 14);
  EXPECT_EQ(result.scaling->failed_starts, 1);
  // Nothing for 30 s: tried again after 1, 2, 4, 8 and 16 s.
  options.faults = {{.kind = Fault::Kind::kStockOut, .at_s = 0, .until_s = 30}};
  result = run(options, one);
  EXPECT_GE(first_token_s(result.records[0]), 35);
  EXPECT_LE(first_token_s(result.records[0]), 40);
  EXPECT_EQ(result.scaling->failed_starts, 5);
  EXPECT_EQ(result.scaling->history.steps()[0].not_started, 1);
}

TEST(Autoscaling, ClientsLeaveAndTryAgain) {
  Autoscaling asked{.policy = {.replicas_min = 0, .replicas_max = 1}, .start_s = 20, .replicas = 0};
  SimulationOptions options = scaled_fleet(asked);
  options.clients.patience_s = 3;
  SimulationResult result = run(options, simulator::load({{1, 1}, {25, 0}, {26, 1}}));
  EXPECT_EQ(result.left, 1);
  EXPECT_EQ(result.records[0].error, "its client left");
  EXPECT_EQ(result.records[0].end_ns, 3'000'000'000);
  EXPECT_TRUE(result.records[1].ok);
  // Refused by a gateway that holds nothing, until a replica is there.
  options.clients = {.retries_max = 6, .back_off_s = 1};
  options.autoscaling->held_max = 0;
  result = run(options, simulator::load({{1, 1}}));
  EXPECT_TRUE(result.records[0].ok);
  EXPECT_GE(result.client_retries, 4);
  options.clients.retries_max = 1;
  result = run(options, simulator::load({{1, 1}}));
  EXPECT_EQ(result.records[0].error, "the gateway holds too many");
  // Held for a while, and then refused.
  options.clients = {};
  options.autoscaling->held_max = 10;
  options.autoscaling->hold_s_max = 5;
  result = run(options, simulator::load({{1, 1}}));
  EXPECT_EQ(result.records[0].error, "held for too long");
  EXPECT_EQ(result.records[0].end_ns, 5'000'000'000);
}

TEST(Autoscaling, RecordedFactsAreDecidedAgainByteForByte) {
  Autoscaling asked{.policy = {.replicas_min = 0, .replicas_max = 8}, .start_s = 5};
  std::vector<std::string> lines;
  asked.record = [&](std::string_view line) { lines.emplace_back(line); };
  run(scaled_fleet(asked), simulator::load({{60, 1}, {120, 20}, {500, 0.2}}));
  autoscaler::FactsReplay replay;
  int decisions = 0;
  for (const std::string& line : lines) {
    const auto outcome = replay.feed(line);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    ASSERT_TRUE(outcome->is_equal) << line;
    decisions += outcome->is_decision ? 1 : 0;
  }
  EXPECT_GE(decisions, 200);
}

TEST(Autoscaling, BadOptionsAreRefusedByName) {
  Autoscaling asked{.policy = {.replicas_min = 5, .replicas_max = 4}};
  const cost_model::StepTimeModel times = *even_steps(0.05);
  const auto message = [&] {
    return simulate(scaled_fleet(asked), simulator::load({{1, 1}}), times).error().message;
  };
  EXPECT_THAT(message(), HasSubstr("replicas_min (5) is more than replicas_max (4)"));
  asked = {.policy = {.replicas_max = 4}, .replicas = 5};
  EXPECT_THAT(message(), HasSubstr("replicas at the beginning must be 0 to 4"));
  asked = {.policy = {.replicas_max = 4}, .start_s = std::nan("")};
  EXPECT_THAT(message(), HasSubstr("a start must take"));
  asked = {.policy = {.replicas_max = 4}, .phases = {{.name = "weights", .seconds = -1}}};
  EXPECT_THAT(message(), HasSubstr("a start must take"));
  asked.phases = {{.name = "a", .seconds = 1}, {.name = "weights", .seconds = 1, .p90_s = 1e9}};
  EXPECT_THAT(message(), HasSubstr("phase 'weights'"));
  asked = {.policy = {.replicas_max = 4}};
  SimulationOptions options = scaled_fleet(asked);
  options.clients.patience_s = 0;
  const auto refusal = [&] {
    return simulate(options, simulator::load({{1, 1}}), times).error().message;
  };
  EXPECT_THAT(refusal(), HasSubstr("patience"));
  options.clients = {.retries_max = 101};
  EXPECT_THAT(refusal(), HasSubstr("retries must be 0 to 100"));
  options.clients = {.back_off_s = -1};
  EXPECT_THAT(refusal(), HasSubstr("back_off"));
  options = scaled_fleet(asked);
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 4}};
  EXPECT_THAT(refusal(), HasSubstr("there is no replica 4"));
  options.autoscaling.reset();
  options.faults = {{.kind = Fault::Kind::kStockOut}};
  EXPECT_THAT(refusal(), HasSubstr("only where a fleet is scaled"));
}

}  // namespace
}  // namespace pelton::simulator
