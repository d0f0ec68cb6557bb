// Requests that are split between replicas, with executors that check what each block holds.
#include <gtest/gtest.h>

#include "simulator/simulation.h"
#include "workload/spec.h"

namespace pelton::simulator {
namespace {

using Mode = gateway::SplitConfig::Mode;

// 1 ms a step, 0.1 ms a row and 10 us a token.
cost_model::StepTimeModel round_times() {
  cost_model::Hardware hardware = *cost_model::find_hardware("h100");
  hardware.bytes_per_second = 1e18;
  hardware.rates[cost_model::Arithmetic::kBf16] = 1e30;
  return *cost_model::StepTimeModel::make({.hardware = hardware,
                                           .shape = *cost_model::find_model_config("gpt-oss-20b"),
                                           .efficiency = {.bandwidth = 1,
                                                          .compute = 1,
                                                          .attention = 1,
                                                          .step_s = 1e-3,
                                                          .token_s = 1e-5,
                                                          .row_s = 1e-4}});
}

SimulationOptions pair_of(Mode mode, gateway::SplitConfig::Handoff handoff) {
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full", .block_bytes = 1000}, {2000, 2000, 0}},
                 {{.name = "window", .sliding_window = 128, .block_bytes = 1000}, {1000, 1000, 0}}},
      .sequences_max = 8,
      .batch_tokens_max = 256,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.replica.paths.link = {.bytes_per_s = 1e9, .latency_s = 1e-5};
  options.replica_count = 2;
  options.dispatch = Dispatcher::Policy::kCost;
  options.split = {.mode = mode, .handoff = handoff};
  options.prefill_replicas = mode == Mode::kOff ? 0 : 1;
  return options;
}

workload::Workload requests(const std::string& spec) {
  return *workload::make_workload(*workload::parse_spec(*Json::parse(spec), "test"),
                                  workload::ids_vocabulary(1000));
}

SimulationResult run(const SimulationOptions& options, const workload::Workload& workload) {
  Result<SimulationResult> result = simulate(options, workload, round_times());
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

// fleet.md 11.1: of 64 whole blocks the full group's, and of the window's the 8 or 9 of its end.
TEST(Split, MovesTheFullGroupAndOneWindow) {
  const SimulationResult result =
      run(pair_of(Mode::kAlways, gateway::SplitConfig::Handoff::kWarm),
          requests(R"({"input_tokens":1025,"output_tokens":40,"count":1,"rate":"inf"})"));
  ASSERT_EQ(result.records.size(), 1u);
  EXPECT_TRUE(result.records[0].ok);
  EXPECT_EQ(result.records[0].output_tokens, 40);
  EXPECT_EQ(result.travel.split, 1);
  EXPECT_EQ(result.travel.handed_over, 1);
  EXPECT_EQ(result.travel.bytes, (64 + 8) * 1000);
  EXPECT_EQ(result.travel.bytes_whole, 2 * 64 * 1000);
  EXPECT_EQ(result.travel.recomputed_tokens, 0);
  EXPECT_EQ(result.journeys[0].replica, 1);
  EXPECT_GT(result.replicas[1].tokens, 30);
  EXPECT_LT(result.replicas[1].tokens, 80) << "it computed the prompt again";
}

TEST(Split, EveryAnswerIsWholeWhateverTheHandOff) {
  const workload::Workload load = requests(
      R"({"input_tokens":600,"output_tokens":30,"range_ratio":0.8,"count":60,"rate":40,"seed":3})");
  for (const auto handoff :
       {gateway::SplitConfig::Handoff::kWarm, gateway::SplitConfig::Handoff::kFirst}) {
    for (const Mode mode : {Mode::kAlways, Mode::kAuto}) {
      SimulationOptions options = pair_of(mode, handoff);
      options.replica_count = 4;
      options.prefill_replicas = 2;
      const SimulationResult result = run(options, load);
      ASSERT_EQ(result.records.size(), 60u);
      for (const report::RequestRecord& record : result.records) EXPECT_TRUE(record.ok);
      EXPECT_EQ(result.travel.split, result.travel.handed_over + result.travel.ended +
                                         result.travel.no_decoder + result.travel.failed);
      if (mode == Mode::kAlways) {
        EXPECT_GT(result.travel.handed_over, 50);
        // Two steps of at most 4.5 ms and 5 ms.
        EXPECT_LT(result.travel.gap_s / static_cast<double>(result.travel.handed_over), 0.014);
      }
    }
  }
}

// Either side dies amid it: nothing is lost, and no block is left over (the ledgers are CHECKed).
TEST(Split, WhoeverDiesNothingIsLost) {
  const workload::Workload load = requests(
      R"({"input_tokens":600,"output_tokens":30,"range_ratio":0.8,"count":60,"rate":60,"seed":4})");
  for (const int victim : {0, 1, 2, 3}) {
    SimulationOptions options = pair_of(Mode::kAlways, gateway::SplitConfig::Handoff::kWarm);
    options.replica_count = 4;
    options.prefill_replicas = 2;
    options.answers_go_on = true;
    options.faults = {
        {.kind = Fault::Kind::kCrash, .replica = victim, .at_s = 0.31, .until_s = 0.6}};
    const SimulationResult result = run(options, load);
    ASSERT_EQ(result.records.size(), 60u);
    for (const report::RequestRecord& record : result.records) EXPECT_TRUE(record.ok);
  }
}

TEST(Split, WhatItNeedsIsSaid) {
  const workload::Workload load = requests(R"({"count":1})");
  const auto refused = [&](const SimulationOptions& options) {
    return simulate(options, load, round_times()).error().field;
  };
  SimulationOptions options = pair_of(Mode::kAlways, gateway::SplitConfig::Handoff::kWarm);
  options.prefill_replicas = 2;
  EXPECT_EQ(refused(options), "prefill-replicas");
  options = pair_of(Mode::kAlways, gateway::SplitConfig::Handoff::kWarm);
  options.dispatch = Dispatcher::Policy::kLeastBusy;
  EXPECT_EQ(refused(options), "split");
  options = pair_of(Mode::kAlways, gateway::SplitConfig::Handoff::kWarm);
  options.replica.paths.link = {};
  EXPECT_EQ(refused(options), "split");
  options = pair_of(Mode::kAlways, gateway::SplitConfig::Handoff::kWarm);
  options.replica.capacity.groups[0].block_counts[kv::kHost] = 0;
  EXPECT_EQ(refused(options), "kv-link-bandwidth");
}

}  // namespace
}  // namespace pelton::simulator
