// How many conversations that nobody is talking in are still found, in a KV cache divided by
// cost_model: gpt-oss-20b's shape, its scheduler, and an executor without weights.
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "checkpoint/synthetic.h"
#include "cost_model/footprint.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::executor {
namespace {

// All but what must run goes to full blocks, or is divided between the groups.
enum class Division { kFullBlocks, kBothGroups };

engine::ExecutorCapacity capacity_of(int64_t kv_bytes, Division division) {
  const auto options = checkpoint::synthetic_like("gpt-oss-20b", 0);
  const auto config = families::parse_model_config(options->config, nullptr, "gpt-oss-20b");
  const auto footprint = cost_model::footprint(
      *config, {.prefix_cache = division == Division::kBothGroups, .kv_bytes = kv_bytes});
  CHECK(footprint.ok());
  return {.block_tokens = footprint->kv.block_tokens,
          .groups = footprint->kv_capacity(),
          .sequences_max = footprint->sequences_max,
          .batch_tokens_max = 512,
          .context_tokens_max = footprint->context_tokens_max};
}

std::vector<TokenId> random_tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(base::random_bits(seed, i) % 200'000));
  }
  return tokens;
}

class Fixture {
 public:
  explicit Fixture(const engine::ExecutorCapacity& capacity)
      : scheduler_(capacity, {.prefix_cache = true, .hash_seed = 3}),
        executor_({.capacity = capacity, .next_token = engine::checksum_tokens(1 << 20)}) {}

  // Runs one turn and returns prompt tokens found; `conversation` grows by the answer.
  int turn(std::vector<TokenId>& conversation, int answer_tokens) {
    request::GenerationRequest request;
    request.prompt = conversation;
    request.stop.max_new_tokens = answer_tokens;
    CHECK(scheduler_.submit(std::move(request)).ok());
    for (engine::StepPlan plan = scheduler_.plan(0); !plan.empty(); plan = scheduler_.plan(0)) {
      executor_.submit(std::move(plan));
      scheduler_.commit(executor_.collect());
    }
    int cached = 0;
    std::vector<engine::Scheduler::Event> events;
    scheduler_.take_events(events);
    for (const engine::Scheduler::Event& event : events) {
      if (event.token) conversation.push_back(event.token->token);
      if (event.end) cached = event.end->cached_tokens;
    }
    return cached;
  }

 private:
  engine::Scheduler scheduler_;
  engine::ModelledExecutor executor_;
};

// Of `count` conversations of 2 048 tokens that were held one after the other, those whose next
// turn computes less than 100 of its tokens that were there before.
int found_again(int64_t kv_bytes, int count, Division division) {
  Fixture fixture(capacity_of(kv_bytes, division));
  std::vector<std::vector<TokenId>> conversations;
  for (int i = 0; i < count; ++i) {
    conversations.push_back(random_tokens(static_cast<uint64_t>(i) + 1, 1948));
    fixture.turn(conversations.back(), 100);
  }
  int found = 0;
  // The latest first, and of each only once: asking makes room by taking it from the oldest.
  for (int i = count; i-- > 0;) {
    std::vector<TokenId> next = conversations[static_cast<size_t>(i)];
    const std::vector<TokenId> question = random_tokens(static_cast<uint64_t>(i) + 9999, 20);
    next.insert(next.end(), question.begin(), question.end());
    if (fixture.turn(next, 1) > 2048 - 100) ++found;
  }
  return found;
}

TEST(IdleConversations, AreFoundAgain) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const int in_1 = found_again(kGiB, 40, Division::kBothGroups);
  const int in_4 = found_again(4 * kGiB, 120, Division::kBothGroups);
  const int undivided = found_again(4 * kGiB, 120, Division::kFullBlocks);
  printf(
      "conversations of 2048 tokens found again: %d of 40 in 1 GiB, %d of 120 in 4 GiB; %d with "
      "full blocks alone\n",
      in_1, in_4, undivided);
  EXPECT_GE(in_1, 12);
  EXPECT_GE(in_4, 50);
  EXPECT_LT(undivided * 3, in_4);
}

}  // namespace
}  // namespace pelton::executor
