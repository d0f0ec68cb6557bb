// How much of an 8 k prompt is computed again, on pools of the size that an executor of 16 seats
// and steps of 512 tokens has.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

constexpr ExecutorCapacity kUsual{.block_tokens = 16,
                                  .full_block_count = 4096,
                                  .window_block_count = 192,
                                  .window_tokens = 128,
                                  .sequences_max = 16,
                                  .batch_tokens_max = 512,
                                  .context_tokens_max = 32'768};

std::vector<TokenId> random_tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(base::random_bits(seed, i) % 200'000));
  }
  return tokens;
}

// The first `shared` tokens of `other`, and new ones.
std::vector<TokenId> branch(const std::vector<TokenId>& other, size_t shared, uint64_t seed) {
  std::vector<TokenId> tokens = random_tokens(seed, other.size());
  std::copy_n(other.begin(), shared, tokens.begin());
  return tokens;
}

class PrefixReuse : public testing::Test {
 protected:
  struct Cost {
    int computed = 0;  // prompt tokens
    int cached = 0;
    TokenId answer = 0;
  };

  Cost run(std::vector<TokenId> prompt) {
    Cost cost;
    const int length = static_cast<int>(prompt.size());
    request::GenerationRequest request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = 1;
    CHECK(scheduler_.submit(std::move(request)).ok());
    for (StepPlan plan = scheduler_.plan(0); !plan.empty(); plan = scheduler_.plan(0)) {
      for (const PlannedSequence& row : plan.sequences) cost.computed += row.token_count();
      executor_.submit(std::move(plan));
      scheduler_.commit(executor_.collect());
    }
    std::vector<Scheduler::Event> events;
    scheduler_.take_events(events);
    for (const Scheduler::Event& event : events) {
      if (event.token) cost.answer = event.token->token;
      if (event.end) cost.cached = event.end->cached_tokens;
    }
    EXPECT_EQ(cost.computed + cost.cached, length);
    scheduler_.check_integrity();
    return cost;
  }

  Scheduler scheduler_{kUsual, {.prefix_cache = true, .hash_seed = 5}};
  ModelledExecutor executor_{{.capacity = kUsual, .next_token = checksum_tokens(1 << 20)}};
};

TEST_F(PrefixReuse, an_8k_prompt_that_shares_7_5k_computes_the_rest) {
  const std::vector<TokenId> first = random_tokens(1, 8192);
  EXPECT_EQ(run(first).computed, 8192);
  EXPECT_LE(run(branch(first, 7680, 2)).computed, 1040);
  // In whole landmarks too when the branching point is none: at most one landmark is lost.
  EXPECT_LE(run(branch(first, 7000, 3)).computed, 8192 - 7000 + 512 + 16);
}

TEST_F(PrefixReuse, sharing_all_but_32_computes_a_fiftieth) {
  const std::vector<TokenId> first = random_tokens(1, 8192);
  const Cost cold = run(first);
  const Cost warm = run(branch(first, 8160, 2));
  EXPECT_LE(warm.computed * 50, cold.computed);
}

TEST_F(PrefixReuse, the_same_prompt_computes_one_block) {
  const std::vector<TokenId> first = random_tokens(1, 8192);
  const Cost cold = run(first);
  const Cost warm = run(first);
  EXPECT_EQ(warm.computed, 16);
  EXPECT_EQ(warm.answer, cold.answer);
}

// What was found in the cache is seen, with checks or without: a server that talks by a script has
// none.
TEST_F(PrefixReuse, without_checks_what_was_found_is_seen_too) {
  const std::vector<TokenId> prompt = random_tokens(1, 2000);
  std::vector<TokenId> seen;
  const auto remember = [&](const ModelledExecutor::Seen& one) {
    seen.assign(one.full.begin(), one.full.end());
    return TokenId{7};
  };
  ModelledExecutor executor({.capacity = kUsual, .next_token = remember, .checks = false});
  for (int round = 0; round < 2; ++round) {
    request::GenerationRequest request;
    request.prompt = prompt;
    request.stop.max_new_tokens = 1;
    ASSERT_TRUE(scheduler_.submit(std::move(request)).ok());
    for (StepPlan plan = scheduler_.plan(0); !plan.empty(); plan = scheduler_.plan(0)) {
      executor.submit(std::move(plan));
      scheduler_.commit(executor.collect());
    }
    EXPECT_EQ(seen, prompt) << "round " << round;
    seen.clear();
  }
}

// Other long prompts in between take window blocks; the landmarks of the first outlive a few of
// them in part, and the answer is the same whatever is left.
TEST_F(PrefixReuse, what_was_evicted_is_computed_again) {
  const std::vector<TokenId> first = random_tokens(1, 8192);
  const Cost cold = run(first);
  for (uint64_t seed = 10; seed < 30; ++seed) run(random_tokens(seed, 4000));
  const Cost again = run(first);
  EXPECT_EQ(again.answer, cold.answer);
  EXPECT_GT(again.computed, 16);
}

}  // namespace
}  // namespace pelton::engine
