// The fluid fidelity beside the one that plays every step, on the same loads: throughput within
// 3 %, the 90th percentile of first tokens within 12 %.
#include "simulator/fluid_fleet.h"

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
      {"conversations, cost", "h100", 4, 64,
       R"({"input_tokens":400,"output_tokens":200,"turns":4,"think_s":5,"count":400,"rate":6})",
       Dispatcher::Policy::kCost},
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
  }
}

}  // namespace
}  // namespace pelton::simulator
