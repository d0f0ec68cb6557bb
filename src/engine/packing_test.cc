// How an encoder's texts are packed into steps (ExecutorCapacity::whole_prompts): 4000 of an
// adversarial mix of lengths, in bursts, some cancelled; 20 000 under PELTON_FULL=1. PELTON_SEED
// repeats a run.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

constexpr int kStepTokens = 1024;
constexpr int kTextMax = 512;

ExecutorCapacity capacity() {
  ExecutorCapacity made{.sequences_max = 1,
                        .pooled_sequences_max = 2 * kStepTokens,
                        .embedding_size = 1,
                        .whole_prompts = true,
                        .batch_tokens_max = kStepTokens,
                        .context_tokens_max = kTextMax};
  kv::GroupCapacity group{.spec = {.name = "full"}};
  group.block_counts[kv::kDevice] = 2 * kStepTokens;
  made.groups.push_back(group);
  return made;
}

request::GenerationRequest text(int tokens, std::string tenant = "bulk") {
  request::GenerationRequest request{.prompt = std::vector<TokenId>(static_cast<size_t>(tokens), 7),
                                     .pooling = request::Pooling::kMean};
  request.tenant = std::move(tenant);
  return request;
}

int tokens_of(const StepPlan& plan) {
  int tokens = 0;
  for (const ScheduledRow& row : plan.sequences) tokens += row.token_count();
  return tokens;
}

StepResult result_of(const StepPlan& plan) {
  StepResult result{.step = plan.step};
  for (const ScheduledRow& row : plan.sequences) {
    SequenceResult& one = result.sequences.emplace_back();
    one.slot = row.slot;
    EXPECT_EQ(row.start, 0) << "a text is computed whole";
    EXPECT_TRUE(row.embed);
    one.embedding = {static_cast<int32_t>(result.floats.size()), 1};
    result.floats.push_back(static_cast<float>(row.token_count()));
  }
  return result;
}

class Packing : public testing::Test {
 protected:
  Packing() {
    const char* given = std::getenv("PELTON_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
    random_.seed(seed);
  }
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }

  // Mostly short, some as long as can be, some just over a half, which two of do not fit.
  int length() {
    switch (below(5)) {
      case 0:
        return kTextMax;
      case 1:
        return kStepTokens / 2 - below(40);
      case 2:
        return 1 + below(kTextMax);
      default:
        return 1 + below(24);
    }
  }

  Scheduler scheduler_{capacity(), {.prefix_cache = false}};
  std::mt19937_64 random_;
};

TEST_F(Packing, AnAdversarialMixFillsStepsAndLosesNothing) {
  const int text_count = std::getenv("PELTON_FULL") != nullptr ? 20'000 : 4'000;
  std::map<SequenceId, int> lengths;
  std::set<SequenceId> cancelled;
  std::set<SequenceId> ended;
  int submitted = 0;
  int full_steps = 0;
  int64_t filled = 0;
  while (submitted < text_count || !scheduler_.idle()) {
    for (int burst = below(3) == 0 ? below(400) : 0; burst > 0 && submitted < text_count; --burst) {
      const int tokens = length();
      const auto id =
          scheduler_.submit(text(tokens, std::string(1, static_cast<char>('a' + below(3)))));
      ASSERT_TRUE(id.ok()) << id.error().message;
      lengths[*id] = tokens;
      ++submitted;
      if (below(20) == 0) {
        scheduler_.cancel(*id);
        cancelled.insert(*id);
      }
    }
    const StepPlan plan = scheduler_.plan(0);
    if (!plan.empty()) {
      const int tokens = tokens_of(plan);
      ASSERT_LE(tokens, kStepTokens);
      if (scheduler_.waiting_count() > 64) {
        ++full_steps;
        filled += tokens;
      }
      scheduler_.commit(result_of(plan));
    }
    std::vector<Scheduler::Event> events;
    scheduler_.take_events(events);
    for (const Scheduler::Event& event : events) {
      if (event.end == nullptr) continue;
      EXPECT_TRUE(ended.insert(event.id).second) << "ended twice";
      if (event.end->reason == FinishReason::kCancelled) {
        EXPECT_TRUE(cancelled.contains(event.id));
        continue;
      }
      ASSERT_EQ(event.end->reason, FinishReason::kEmbedded);
      EXPECT_EQ(event.end->embedding, std::vector<float>{static_cast<float>(lengths[event.id])});
    }
  }
  EXPECT_EQ(ended.size(), static_cast<size_t>(text_count));
  ASSERT_GT(full_steps, 0);
  const double fill = static_cast<double>(filled) / (double{kStepTokens} * full_steps);
  std::printf("%d steps behind a queue, %.1f %% full\n", full_steps, 100 * fill);
  EXPECT_GE(fill, 0.9);
}

// Whatever stands behind it, the first in line is in the next step; a query of another tenant
// beside a full queue of documents waits for the step that runs, and no longer.
TEST_F(Packing, NobodyStarves) {
  ASSERT_TRUE(scheduler_.submit(text(kTextMax)).ok());
  const SequenceId second = scheduler_.submit(text(kTextMax)).value();
  const SequenceId third = scheduler_.submit(text(kTextMax)).value();
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(scheduler_.submit(text(16)).ok());
  StepPlan plan = scheduler_.plan(0);
  EXPECT_EQ(tokens_of(plan), 2 * kTextMax);  // two long ones, and no room
  scheduler_.commit(result_of(plan));
  const SequenceId query = scheduler_.submit(text(8, "someone")).value();
  plan = scheduler_.plan(0);
  scheduler_.commit(result_of(plan));
  std::set<SequenceId> ended;
  std::vector<Scheduler::Event> events;
  scheduler_.take_events(events);
  for (const Scheduler::Event& event : events) {
    if (event.end != nullptr) ended.insert(event.id);
  }
  EXPECT_TRUE(ended.contains(second));
  EXPECT_TRUE(ended.contains(third));
  EXPECT_TRUE(ended.contains(query));
  EXPECT_GT(tokens_of(plan), kStepTokens * 9 / 10);
}

TEST_F(Packing, WhatIsTooLongIsRefused) {
  EXPECT_TRUE(scheduler_.submit(text(kTextMax)).ok());
  EXPECT_FALSE(scheduler_.submit(text(kTextMax + 1)).ok());
  request::GenerationRequest generates = text(4);
  generates.pooling.reset();
  const auto refused = scheduler_.submit(std::move(generates));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pelton::engine
