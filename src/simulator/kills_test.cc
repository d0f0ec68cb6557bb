// Replicas that die under streams, again and again, while what they had begun to answer goes on at
// others, as behind a gateway: every request ends, with all of its own tokens and no other, each
// once (the fleet CHECKs every token against its request's seed and position). PELTON_FULL: 10^5
// deaths.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "simulator/even_steps.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

constexpr int kReplicas = 4;
constexpr int kDeaths = 50;  // of a run
constexpr double kBetween_s = 0.2;

SimulationOptions a_fleet(uint64_t seed) {
  SimulationOptions options;
  options.seed = seed;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {200}}, {{.name = "window", .sliding_window = 128}, {120}}},
      .sequences_max = 8,
      .batch_tokens_max = 64,
      .context_tokens_max = 300,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.replica_count = kReplicas;
  options.answers_go_on = true;
  options.retries_max = kDeaths;
  options.dispatch = static_cast<Dispatcher::Policy>(base::random_bits(seed, 0) % 6);
  options.gateways = 1 + static_cast<int>(base::random_bits(seed, 1) % 3);
  options.report_s = base::random_bits(seed, 2) % 2 == 0 ? 0 : 0.1;
  options.reports_lost = options.reports_doubled = 0.2;
  for (uint64_t i = 0; i < kDeaths; ++i) {
    // Who is gone is back before the next but one dies: two stay.
    const double at_s = kBetween_s * (static_cast<double>(i) + base::random_unit(seed, 3 * i + 4));
    options.faults.push_back({.kind = Fault::Kind::kCrash,
                              .replica = static_cast<int>(i % kReplicas),
                              .at_s = at_s,
                              .until_s = at_s + kBetween_s});
  }
  return options;
}

workload::Workload a_load(uint64_t seed) {
  workload::Workload load;
  for (uint64_t i = 0; i < 120; ++i) {
    load.at_s.push_back(static_cast<double>(i) * kDeaths * kBetween_s / 120);
    workload::Conversation& one = load.conversations.emplace_back();
    for (uint64_t turns = 1 + base::random_bits(seed, 5 * i) % 2; turns > 0; --turns) {
      one.turns.push_back(
          {.prompt = std::to_string(i % 7),
           .prompt_tokens = 1 + static_cast<int>(base::random_bits(seed, 5 * i + turns) % 60),
           .output_tokens = 1 + static_cast<int>(base::random_bits(seed, 5 * i + turns + 2) % 60),
           .think_s = 0.1});
    }
  }
  return load;
}

TEST(SimulatedKills, NothingIsLostDoubledOrMixed) {
  const cost_model::StepTimeModel times = *even_steps(0.02);
  const uint64_t runs = (std::getenv("PELTON_FULL") != nullptr ? 100'000 : 1'000) / kDeaths;
  int64_t moved = 0;
  int64_t answers = 0;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    const workload::Workload load = a_load(seed);
    const Result<SimulationResult> result = simulate(a_fleet(seed), load, times);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_EQ(result->unfinished, 0) << "seed " << seed;
    for (const report::RequestRecord& record : result->records) {
      ASSERT_TRUE(record.ok) << record.error << ", seed " << seed;
      const auto& turns = load.conversations[static_cast<size_t>(record.conversation)].turns;
      ASSERT_EQ(record.output_tokens, turns[static_cast<size_t>(record.turn)].output_tokens);
      ASSERT_EQ(std::ssize(record.pieces), record.output_tokens);
    }
    answers += std::ssize(result->records);
    moved += result->moved;
  }
  EXPECT_GT(moved, static_cast<int64_t>(runs) * kDeaths / 2) << "of " << answers << " answers";
}

// Without a gateway's memory of what was said, what a death interrupts is an error.
TEST(SimulatedKills, OtherwiseBegunAnswersFail) {
  SimulationOptions options = a_fleet(1);
  options.answers_go_on = false;
  const Result<SimulationResult> result = simulate(options, a_load(1), *even_steps(0.02));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->moved, 0);
  EXPECT_GT(std::ranges::count_if(result->records, [](const auto& one) { return !one.ok; }), 10);
}

}  // namespace
}  // namespace pelton::simulator
