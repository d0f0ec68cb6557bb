// What swapping and sharing save, counted in computed tokens, and what KV events report it.
#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

const ExecutorCapacity kTight{
    .block_tokens = 4,
    .groups = {{{.name = "full"}, {24, 80}}, {{.name = "window", .sliding_window = 10}, {20, 40}}},

    .sequences_max = 6,
    .batch_tokens_max = 32,
    .context_tokens_max = 96};

request::GenerationRequest make_request(int prompt, int max_new, uint64_t seed) {
  request::GenerationRequest request;
  for (int i = 0; i < prompt; ++i) {
    request.prompt.push_back(
        static_cast<TokenId>(base::random_bits(seed, static_cast<uint64_t>(i)) % 1000));
  }
  request.stop.max_new_tokens = max_new;
  request.sampling.seed = seed;
  return request;
}

// Runs all that was submitted to its end.
struct Workshop {
  explicit Workshop(const ExecutorCapacity& capacity, bool prefix_cache)
      : events(10'000),
        scheduler(capacity, {.prefix_cache = prefix_cache, .hash_seed = 1, .events = &events}),
        executor({.capacity = capacity, .next_token = checksum_tokens(1000)}) {}

  void to_the_end() {
    std::vector<Scheduler::Event> happened;
    for (StepPlan plan = scheduler.plan(0); !plan.empty(); plan = scheduler.plan(0)) {
      for (const ScheduledRow& row : plan.sequences) computed += row.token_count();
      executor.submit(std::move(plan));
      scheduler.commit(executor.collect());
      scheduler.check_integrity();
      scheduler.take_events(happened);
      for (const Scheduler::Event& event : happened) {
        if (event.token) outputs[event.id].push_back(event.token->token);
      }
    }
    EXPECT_TRUE(scheduler.ledger().clean());
  }

  kv::EventLog events;
  Scheduler scheduler;
  ModelledExecutor executor;
  int computed = 0;
  std::map<SequenceId, std::vector<TokenId>> outputs;
};

TEST(Swap, nothing_is_computed_twice) {
  for (const bool prefix_cache : {false, true}) {
    int tokens = 0;
    Workshop run(kTight, prefix_cache);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const int prompt = 10 + static_cast<int>(seed);
      ASSERT_TRUE(run.scheduler.submit(make_request(prompt, 40, seed)).ok());
      tokens += prompt + 40 - 1;
    }
    run.to_the_end();
    EXPECT_EQ(run.computed, tokens);
    EXPECT_GT(run.scheduler.counters().preemptions_swap, 3);
    EXPECT_EQ(run.scheduler.counters().preemptions_recompute, 0);
    EXPECT_EQ(run.scheduler.swapped_out_count(), 0);
  }
}

// The same without room on the host: the difference is what swapping saves.
TEST(Swap, without_room_on_the_host_work_is_lost_and_counted) {
  ExecutorCapacity capacity = kTight;
  capacity.groups[0].block_counts[kv::kHost] = 0;
  Workshop run(capacity, false);
  int tokens = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const int prompt = 10 + static_cast<int>(seed);
    ASSERT_TRUE(run.scheduler.submit(make_request(prompt, 40, seed)).ok());
    tokens += prompt + 40 - 1;
  }
  run.to_the_end();
  EXPECT_EQ(run.scheduler.counters().preemptions_swap, 0);
  EXPECT_GT(run.scheduler.counters().preemptions_recompute, 3);
  EXPECT_GT(run.scheduler.counters().tokens_lost, 50);
  EXPECT_EQ(run.computed, tokens + run.scheduler.counters().tokens_lost);
}

TEST(Swap, kv_events_tell_the_tier) {
  Workshop run(kTight, true);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    ASSERT_TRUE(run.scheduler.submit(make_request(12, 40, seed)).ok());
  }
  run.to_the_end();
  std::map<std::pair<int, kv::Tier>, int> findable;
  int64_t stored_on_host = 0;
  for (const kv::Event& event : run.events.read({.events_max = 10'000}).events) {
    const bool stored = event.kind == kv::Event::Kind::kStored;
    findable[{event.group, event.tier}] += stored ? 1 : -1;
    if (stored && event.tier == kv::kHost) ++stored_on_host;
  }
  EXPECT_EQ(run.events.dropped_count(), 0);
  EXPECT_GT(stored_on_host, 10);
  // What the events add up to is what the pools hold at the end: nobody holds anything any more.
  const Ledger ledger = run.scheduler.ledger();
  for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
    for (int group = 0; group < kTight.groups.size(); ++group) {
      EXPECT_EQ((findable[{group, tier}]), ledger.of(group, tier).kept);
    }
  }
}

// Whatever the prompt's length, also where it ends with a block, and whether or not there is a
// prefix cache: the prompt once, one token of it for each further answer, and the outputs.
TEST(Answers, the_prompt_is_computed_once) {
  ExecutorCapacity roomy = kTight;
  roomy.groups[0].block_counts[kv::kDevice] = 200;
  roomy.groups[1].block_counts[kv::kDevice] = 100;
  for (const bool prefix_cache : {false, true}) {
    for (int prompt = 2; prompt < 50; ++prompt) {
      Workshop run(roomy, prefix_cache);
      request::GenerationRequest request = make_request(prompt, 5, 3);
      const auto ids = run.scheduler.submit_answers(request, 4);
      ASSERT_TRUE(ids.ok());
      run.to_the_end();
      EXPECT_EQ(run.computed, prompt + 3 + 4 * 4) << prompt;
      for (const SequenceId id : *ids) {
        Workshop alone(roomy, false);
        const SequenceId only = *alone.scheduler.submit(request);
        alone.to_the_end();
        EXPECT_EQ(run.outputs[id], alone.outputs[only]) << prompt;
        ++request.sampling.seed;
      }
    }
  }
}

}  // namespace
}  // namespace pelton::engine
