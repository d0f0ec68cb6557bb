// LoRA adapters in a simulated fleet: who is found in memory, how long the others wait, and that
// many names over few places degrade to the rate of loads and no further.
// PELTON_FULL=1 asks for each of 10,000 names, otherwise 1,000.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/fleet_text.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

constexpr double kLoadsPerSecond = 20;

cost_model::StepTimeModel times() {
  cost_model::Hardware hardware = *cost_model::find_hardware("h100");
  return *cost_model::StepTimeModel::make({.hardware = hardware,
                                           .shape = *cost_model::find_model_config("gpt-oss-20b"),
                                           .efficiency = {.step_s = 1e-3, .row_s = 1e-4}});
}

SimulationOptions fleet(int replicas, int adapters, double skew, int places) {
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {4000}}, {{.name = "window", .sliding_window = 128}, {4000}}},
      .sequences_max = 16,
      .batch_tokens_max = 256,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  options.replica.capacity.adapters_max = places;
  options.replica.adapters = {.resident_max = places, .loads_per_second = kLoadsPerSecond};
  options.replica.checks = true;
  options.replica_count = replicas;
  options.dispatch = Dispatcher::Policy::kCost;
  options.adapters = {.count = adapters, .skew = skew};
  options.keeps_pieces = false;
  return options;
}

workload::Workload requests(int count, const std::string& rate) {
  const Result<workload::WorkloadSpec> parsed = workload::parse_spec(
      *Json::parse(fmt::format(R"({{"input_tokens":40,"output_tokens":8,"count":{},"rate":{}}})",
                               count, rate)),
      "test");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return *workload::make_workload(*parsed, workload::ids_vocabulary(1000));
}

SimulationResult run(const SimulationOptions& options, const workload::Workload& workload) {
  const cost_model::StepTimeModel model = times();
  Result<SimulationResult> result = simulate(options, workload, model);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

AdapterCounts counts_of(const SimulationResult& result) {
  AdapterCounts counts;
  for (const ReplicaCounts& one : result.replicas) counts += one.adapters;
  return counts;
}

// Seconds to the first token, from the smallest on.
std::vector<double> first_tokens(const SimulationResult& result) {
  std::vector<double> all;
  for (const report::RequestRecord& record : result.records) {
    EXPECT_TRUE(record.ok) << record.error;
    all.push_back(static_cast<double>(record.first_byte_ns - record.start_ns) * 1e-9);
  }
  std::ranges::sort(all);
  return all;
}

// 64 clients ask for names that are never in memory. Whoever waits has at most 63 loads before his
// own: what the rate of loads makes of that is the worst, and as many are answered a second.
TEST(SimulatedAdapters, LR_06_many_names_over_eight_places_degrade_to_the_rate_of_loads) {
  const int names = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 1'000;
  constexpr int kClients = 64;
  SimulationOptions options = fleet(1, names, 0, 8);
  options.concurrency_max = kClients;
  const SimulationResult result = run(options, requests(2 * names, "\"inf\""));
  ASSERT_EQ(result.records.size(), static_cast<size_t>(2 * names));
  EXPECT_EQ(result.unfinished, 0);
  const std::vector<double> waited = first_tokens(result);
  const double p99_s = waited[waited.size() * 99 / 100];
  EXPECT_LE(p99_s, kClients / kLoadsPerSecond + 0.5);
  EXPECT_LE(waited.back(), kClients / kLoadsPerSecond + 1.5);
  const AdapterCounts counts = counts_of(result);
  EXPECT_GE(static_cast<double>(result.records.size()) / result.duration_s, kLoadsPerSecond * 0.98);
  EXPECT_LE(static_cast<double>(counts.loads), kLoadsPerSecond * result.duration_s + 8);
  EXPECT_EQ(counts.resident_max, 8);
  EXPECT_EQ(counts.hits + counts.misses, 2 * names);
  EXPECT_EQ(counts.answered, counts.misses);
  EXPECT_EQ(counts.loads - counts.evictions, 8);  // nothing is in use or on its way any more
}

// The model's own requests beside them are answered as if nobody asked for adapters.
TEST(SimulatedAdapters, LR_06_the_models_own_requests_do_not_wait_for_loads) {
  SimulationOptions options = fleet(1, 1000, 0, 8);
  options.adapters.base_share = 0.5;
  const SimulationResult result = run(options, requests(600, "30"));
  std::vector<double> waited = first_tokens(result);
  EXPECT_LE(waited[250], 0.02);
  EXPECT_GE(waited[350], 0.02);
}

TEST(SimulatedAdapters, too_many_who_wait_are_refused) {
  SimulationOptions options = fleet(1, 1000, 0, 4);
  options.replica.adapters.waiting_max = 10;
  const SimulationResult result = run(options, requests(200, "200"));
  const auto refused = std::ranges::count(result.records, false, &report::RequestRecord::ok);
  EXPECT_GT(refused, 100);
  EXPECT_EQ(counts_of(result).refused, refused);
}

// The gateway's router keeps each where it is; one that knows nothing of adapters spreads them.
TEST(SimulatedAdapters, are_found_where_the_router_looks_for_them) {
  SimulationOptions options = fleet(2, 20, 1, 4);
  options.replica.adapters.loads_per_second = 0;
  const workload::Workload load = requests(1000, "20");
  const double by_cost = counts_of(run(options, load)).hits_share();
  options.dispatch = Dispatcher::Policy::kRoundRobin;
  const double in_turn = counts_of(run(options, load)).hits_share();
  EXPECT_GT(by_cost, in_turn + 0.1);
  // Eight of twenty are in memory, those asked for most: by Zipf's law three quarters of requests
  // are for the first eight.
  EXPECT_GT(by_cost, 0.55);
  EXPECT_LT(by_cost, 0.76);
}

// Reports come every tenth of a second: what was sent meanwhile is known to be there.
TEST(SimulatedAdapters, are_found_by_gateways_that_hear_of_them_late) {
  SimulationOptions options = fleet(2, 20, 1, 4);
  options.replica.adapters.loads_per_second = 0;
  options.report_s = 0.1;
  const double late = counts_of(run(options, requests(1000, "20"))).hits_share();
  EXPECT_GT(late, 0.5);
}

// Blocks of one are not another's: of equal prompts only those of one adapter are found.
TEST(SimulatedAdapters, share_no_blocks) {
  SimulationOptions options = fleet(1, 4, 0, 4);
  workload::Workload same = requests(40, "10");
  for (workload::Conversation& one : same.conversations) {
    one.turns[0].ids.assign(40, 7);
  }
  const SimulationResult result = run(options, same);
  int found = 0;
  for (const report::RequestRecord& record : result.records) found += record.cached_tokens > 0;
  EXPECT_EQ(found, 36);  // each of the four once computes them
}

TEST(SimulatedAdapters, a_crash_loses_no_request_that_waits) {
  SimulationOptions options = fleet(2, 200, 0, 4);
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 0, .at_s = 1, .until_s = 2}};
  const SimulationResult result = run(options, requests(200, "50"));
  EXPECT_GT(result.redispatched, 0);
  int lost = 0;
  for (const report::RequestRecord& record : result.records) lost += !record.ok;
  EXPECT_LE(lost, 3);  // that had begun to answer there
  EXPECT_EQ(result.unfinished, 0);
  EXPECT_THAT(fleet_text(options, result, "", 1), testing::HasSubstr("adapters found in memory"));
}

TEST(SimulatedAdapters, need_a_place) {
  SimulationOptions options = fleet(1, 2, 1, 0);
  const cost_model::StepTimeModel model = times();
  const auto refused = simulate(options, requests(2, "1"), model);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "adapters");
}

}  // namespace
}  // namespace pelton::simulator
