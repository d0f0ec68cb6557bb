// The shipped autoscaler over simulated replicas that take time to start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/summary.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

// 50 ms a step, whatever it holds: 40 tokens take 2 s.
cost_model::StepTimeModel slow_steps() {
  cost_model::Hardware hardware = *cost_model::find_hardware("h100");
  hardware.bytes_per_second = 1e18;
  hardware.rates[cost_model::Arithmetic::kBf16] = 1e30;
  return *cost_model::StepTimeModel::make(
      {.hardware = hardware,
       .shape = *cost_model::find_model_config("gpt-oss-20b"),
       .efficiency = {.bandwidth = 1, .compute = 1, .attention = 1, .step_s = 0.05}});
}

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
  const cost_model::StepTimeModel times = slow_steps();
  Result<SimulationResult> result = simulate(options, workload, times);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

int64_t failed(const SimulationResult& result) {
  return std::count_if(result.records.begin(), result.records.end(),
                       [](const report::RequestRecord& record) { return !record.ok; });
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

TEST(Autoscaling, BadOptionsAreRefusedByName) {
  Autoscaling asked{.policy = {.replicas_min = 5, .replicas_max = 4}};
  const cost_model::StepTimeModel times = slow_steps();
  const auto message = [&] {
    return simulate(scaled_fleet(asked), simulator::load({{1, 1}}), times).error().message;
  };
  EXPECT_THAT(message(), HasSubstr("replicas_min (5) is more than replicas_max (4)"));
  asked = {.policy = {.replicas_max = 4}, .replicas = 5};
  EXPECT_THAT(message(), HasSubstr("replicas at the beginning must be 0 to 4"));
}

}  // namespace
}  // namespace pelton::simulator
