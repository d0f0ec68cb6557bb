// The fluid fidelity beside the one that plays every step, on the same loads: throughput within
// 3 %, the 90th percentile of first tokens within 12 %.
#include "simulator/fluid_fleet.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/fleet_figures.h"

namespace pelton::simulator {
namespace {

using testing::HasSubstr;

cost_model::StepTimeModel times_of(const std::string& gpu, const std::string& model) {
  return *cost_model::StepTimeModel::make({.hardware = *cost_model::find_hardware(gpu),
                                           .shape = *cost_model::find_model_config(model)});
}

SimulationOptions fleet_of(int replicas, int slots) {
  SimulationOptions options;
  options.replica_count = replicas;
  options.keeps_pieces = false;
  options.replica.capacity = {.groups = {{{.name = "full"}, {slots * 256}},
                                         {{.name = "window", .sliding_window = 128}, {slots * 64}}},
                              .sequences_max = slots,
                              .batch_tokens_max = 2048,
                              .context_tokens_max = 16'384,
                              .vocab_size = 1000};
  return options;
}

workload::Workload load_of(const std::string& spec) {
  const Result<workload::WorkloadSpec> parsed = workload::parse_spec(*Json::parse(spec), "test");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return *workload::make_workload(*parsed, workload::ids_vocabulary(1000));
}

struct Case {
  std::string name;
  std::string gpu;
  int replicas = 1;
  int slots = 16;
  std::string load;
  Dispatcher::Policy router = Dispatcher::Policy::kLeastBusy;
  std::optional<Autoscaling> autoscaling;
};

FluidCheck check(const Case& one) {
  SimulationOptions options = fleet_of(one.replicas, one.slots);
  options.dispatch = one.router;
  options.autoscaling = one.autoscaling;
  const workload::Workload load = load_of(one.load);
  const cost_model::StepTimeModel times = times_of(one.gpu, "gpt-oss-20b");
  const SimulationResult steps = *simulate(options, load, times);
  const SimulationResult fluid = *simulate_fluid(options, load, times);
  EXPECT_EQ(steps.records.size(), fluid.records.size()) << one.name;
  const FluidCheck check = compare_fidelities(options, steps, fluid, 2);
  const FleetFigures exact = figures_of(options, steps, 2, 0);
  fmt::print(
      "{:<24} throughput {:+.1f} %, TTFT p50 {:+.1f} %, p90 {:+.1f} % (of {:.4f} s), hours "
      "{:+.1f} %, late {:+}\n",
      one.name, 100 * check.throughput, 100 * check.ttft_p50, 100 * check.ttft_p90,
      exact.ttft_p90_s.value_or(0), 100 * check.replica_hours, check.late_by);
  return check;
}

Autoscaling scaled(int most, double start_s) {
  Autoscaling asked{.policy = {.replicas_min = 1, .replicas_max = most}, .start_s = start_s};
  asked.policy.concurrency_target = 16;
  return asked;
}

std::vector<Case> cases() {
  return {
      {"one, half full", "l4", 1, 16,
       R"({"input_tokens":300,"output_tokens":150,"range_ratio":0.5,"count":600,"rate":1.5})"},
      {"one, full", "l4", 1, 16,
       R"({"input_tokens":300,"output_tokens":150,"range_ratio":0.5,"count":600,"rate":6})"},
      {"four, long prompts", "h100", 4, 64,
       R"({"input_tokens":4000,"output_tokens":200,"range_ratio":0.5,"count":1500,"rate":12})"},
      {"eight, chat", "h100", 8, 64,
       R"({"input_tokens":500,"output_tokens":300,"range_ratio":0.5,"count":4000,"rate":60})"},
      {"all at once", "h100", 2, 32,
       R"({"input_tokens":400,"output_tokens":200,"range_ratio":0.3,"count":400,"rate":"inf"})"},
      {"closed loop", "l4", 2, 16,
       R"({"input_tokens":400,"output_tokens":200,"range_ratio":0.3,"count":300,"rate":"inf","concurrency_max":24})"},
      {"a spike, scaled", "l4", 1, 16,
       R"({"input_tokens":200,"output_tokens":150,"range_ratio":0.5,"count":2500,"rate":2,"spikes":[{"at_s":200,"for_s":120,"rps":8}]})",
       Dispatcher::Policy::kLeastBusy, scaled(8, 30)},
      {"a day, scaled", "l4", 1, 16,
       R"({"input_tokens":200,"output_tokens":150,"range_ratio":0.5,"count":4000,"rate":4,"day":{"swing":0.8,"period_s":900}})",
       Dispatcher::Policy::kLeastBusy, scaled(8, 20)},
  };
}

TEST(FluidFleet, IsAsTheStepsAre) {
  for (const Case& one : cases()) {
    const FluidCheck found = check(one);
    EXPECT_LE(std::abs(found.throughput), 0.03) << one.name;
    EXPECT_LE(std::abs(found.ttft_p90), 0.12) << one.name;
    EXPECT_LE(std::abs(found.ttft_p50), 0.05) << one.name;
    EXPECT_LE(std::abs(found.replica_hours), 0.03) << one.name;
    EXPECT_LE(std::abs(found.late_by), 25) << one.name;  // of at most 4 000
  }
}

// One seed is one run, each request ends once, and no time goes back.
TEST(FluidFleet, RequestsEndOnceAlsoUnderFaults) {
  SimulationOptions options = fleet_of(4, 16);
  options.faults = {
      {.kind = Fault::Kind::kCrash, .replica = 1, .at_s = 20, .until_s = 60},
      {.kind = Fault::Kind::kSlow, .replica = 0, .at_s = 50, .until_s = 90, .factor = 3}};
  options.clients.patience_s = 8;
  const workload::Workload load = load_of(
      R"({"input_tokens":300,"output_tokens":150,"range_ratio":0.5,"count":600,"rate":6,"turns":2,"think_s":1})");
  const cost_model::StepTimeModel times = times_of("l4", "gpt-oss-20b");
  const SimulationResult one = *simulate_fluid(options, load, times);
  const SimulationResult same = *simulate_fluid(options, load, times);
  ASSERT_EQ(one.records.size(), same.records.size());
  int failed = 0;
  for (size_t i = 0; i < one.records.size(); ++i) {
    const report::RequestRecord& record = one.records[i];
    EXPECT_EQ(record.end_ns, same.records[i].end_ns);
    EXPECT_GE(record.start_ns, record.due_ns);
    if (record.first_byte_ns >= 0) {
      EXPECT_GE(record.first_byte_ns, record.start_ns);
    }
    EXPECT_GE(record.end_ns, record.first_byte_ns);
    failed += record.ok ? 0 : 1;
  }
  EXPECT_GT(failed, 0) << "a replica died";
  EXPECT_EQ(one.unfinished, 0);
}

TEST(FluidFleet, WhatIsNotModelledIsRefusedByName) {
  const workload::Workload load =
      load_of(R"({"input_tokens":30,"output_tokens":10,"count":4,"rate":1})");
  const auto refused = [&](const SimulationOptions& options) {
    const auto result = simulate_fluid(options, load, times_of("l4", "gpt-oss-20b"));
    return result.ok() ? std::string() : result.error().message;
  };
  SimulationOptions options = fleet_of(2, 8);
  EXPECT_EQ(refused(options), "");
  options.gateways = 2;
  EXPECT_THAT(refused(options), HasSubstr("--gateways"));
  options = fleet_of(2, 8);
  options.faults = {{.kind = Fault::Kind::kStepError, .replica = 0, .at_s = 1}};
  EXPECT_THAT(refused(options), HasSubstr("step_error"));
  // Their first tokens' 90th percentile was 39 % below that of the steps.
  options = fleet_of(2, 8);
  options.dispatch = Dispatcher::Policy::kCost;
  EXPECT_EQ(refused(options), "") << "single requests";
  const auto talks = simulate_fluid(
      options,
      load_of(R"({"input_tokens":30,"output_tokens":10,"turns":2,"think_s":1,"count":4,"rate":1})"),
      times_of("l4", "gpt-oss-20b"));
  ASSERT_FALSE(talks.ok());
  EXPECT_THAT(talks.error().message, HasSubstr("conversations under the router 'cost'"));
  options = fleet_of(2, 8);
  options.replica.capacity.draft_tokens_max = 3;
  EXPECT_THAT(refused(options), HasSubstr("--speculative-tokens"));
  options = fleet_of(2, 8);
  options.replica.capacity.groups[0].block_counts[kv::kHost] = 9;
  EXPECT_THAT(refused(options), HasSubstr("--swap-space"));
}

// As at the fidelity of steps.
TEST(FluidFleetTest, WhatIsMoreThanTheContextIsRefused) {
  SimulationOptions options = fleet_of(1, 16);
  options.replica.capacity.context_tokens_max = 200;
  const workload::Workload load = load_of(
      R"({"count":40,"input_tokens":150,"output_tokens":60,"range_ratio":0.5,"rate":2,"seed":3})");
  const auto fluid = simulate_fluid(options, load, times_of("l4", "gpt-oss-20b"));
  const auto steps = simulate(options, load, times_of("l4", "gpt-oss-20b"));
  ASSERT_TRUE(fluid.ok() && steps.ok());
  const auto refused = [](const SimulationResult& result) {
    return std::ranges::count_if(result.records, [](const auto& one) { return !one.ok; });
  };
  EXPECT_GT(refused(*steps), 5);
  EXPECT_EQ(refused(*fluid), refused(*steps));
  EXPECT_EQ(fluid->unfinished, 0);
}

// Nothing can be ordered from the beginning on: the first decision meets that.
TEST(FluidFleetTest, AStockOutFromTheBeginningIsThereAtTheFirstDecision) {
  SimulationOptions options = fleet_of(1, 16);
  options.autoscaling =
      Autoscaling{.policy = {.replicas_min = 1, .replicas_max = 2}, .start_s = 5, .replicas = 0};
  options.faults = {{.kind = Fault::Kind::kStockOut, .at_s = 0, .until_s = 60}};
  const workload::Workload load =
      load_of(R"({"count":20,"input_tokens":50,"output_tokens":20,"rate":2,"seed":3})");
  for (const auto& result : {simulate(options, load, times_of("l4", "gpt-oss-20b")),
                             simulate_fluid(options, load, times_of("l4", "gpt-oss-20b"))}) {
    ASSERT_TRUE(result.ok()) << result.error().message;
    for (const report::RequestRecord& record : result->records) {
      EXPECT_GE(record.first_byte_ns, 60'000'000'000);
    }
  }
}

}  // namespace
}  // namespace pelton::simulator
