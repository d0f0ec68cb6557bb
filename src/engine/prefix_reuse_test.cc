// How much of an 8 k prompt is computed again, on pools of the size that an executor of 16 slots
// and steps of 512 tokens has.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

const ExecutorCapacity kUsual{
    .block_tokens = 16,
    .groups = {{{.name = "full"}, {4096}}, {{.name = "window", .sliding_window = 128}, {192}}},

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

// Window blocks for a few prompts of one step.
const ExecutorCapacity kFewBlocks{
    .block_tokens = 16,
    .groups = {{{.name = "full"}, {4096}}, {{.name = "window", .sliding_window = 128}, {100}}},

    .sequences_max = 1,
    .batch_tokens_max = 512,
    .context_tokens_max = 1024};

// One slot, a window of a block, and window blocks for little more than one prompt of 600 tokens.
const ExecutorCapacity kOneSlot{
    .block_tokens = 16,
    .groups = {{{.name = "full"}, {256}}, {{.name = "window", .sliding_window = 16}, {51}}},

    .sequences_max = 1,
    .batch_tokens_max = 512,
    .context_tokens_max = 1024};

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
    std::vector<TokenId> answer;
  };
  struct Way {
    int output = 1;  // tokens
    // So many steps are planned before the first of them is committed, and all of these are
    // committed before the next is planned.
    int steps_at_once = 1;
  };

  explicit PrefixReuse(const ExecutorCapacity& capacity = kUsual)
      : scheduler_(capacity, {.prefix_cache = true, .hash_seed = 5}),
        executor_({.capacity = capacity, .next_token = checksum_tokens(1 << 20)}) {}

  Cost run(std::vector<TokenId> prompt) { return run(std::move(prompt), {}); }
  Cost run(std::vector<TokenId> prompt, const Way& way) {
    Cost cost;
    const int prompt_count = static_cast<int>(prompt.size());
    request::GenerationRequest request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = way.output;
    CHECK(scheduler_.submit(std::move(request)).ok());
    for (int in_flight = -1; in_flight != 0;) {
      in_flight = 0;
      while (in_flight < way.steps_at_once) {
        StepPlan plan = scheduler_.plan(0);
        if (plan.empty()) break;
        for (const ScheduledRow& row : plan.sequences) {
          if (row.start < prompt_count) cost.computed += row.token_count();
        }
        executor_.submit(std::move(plan));
        ++in_flight;
      }
      for (int i = 0; i < in_flight; ++i) scheduler_.commit(executor_.collect());
    }
    std::vector<Scheduler::Event> events;
    scheduler_.take_events(events);
    for (const Scheduler::Event& event : events) {
      if (event.token) cost.answer.push_back(event.token->token);
      if (event.end) cost.cached = event.end->cached_tokens;
    }
    EXPECT_EQ(cost.computed + cost.cached, prompt_count);
    scheduler_.check_integrity();
    return cost;
  }

  Scheduler scheduler_;
  ModelledExecutor executor_;
};

class PrefixReuseFewBlocks : public PrefixReuse {
 protected:
  PrefixReuseFewBlocks() : PrefixReuse(kFewBlocks) {}
};

class PrefixReuseOneSlot : public PrefixReuse, public testing::WithParamInterface<int> {
 protected:
  PrefixReuseOneSlot() : PrefixReuse(kOneSlot) {}

  Cost run(std::vector<TokenId> prompt) {
    return PrefixReuse::run(std::move(prompt), {.steps_at_once = GetParam()});
  }
};

TEST_F(PrefixReuse, an_8k_prompt_that_shares_7_5k_computes_the_rest) {
  const std::vector<TokenId> first = random_tokens(1, 8192);
  EXPECT_EQ(run(first).computed, 8192);
  EXPECT_LE(run(branch(first, 7680, 2)).computed, 1040);
  // In whole prefix checkpoints too when the branching point is none: at most one prefix checkpoint
  // is lost.
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
    seen.assign(one.tokens.begin(), one.tokens.end());
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

// Other long prompts in between take window blocks; the prefix checkpoints of the first outlive a
// few of them in part, and the answer is the same whatever is left.
TEST_F(PrefixReuse, what_was_evicted_is_computed_again) {
  const std::vector<TokenId> first = random_tokens(1, 8192);
  const Cost cold = run(first);
  for (uint64_t seed = 10; seed < 30; ++seed) run(random_tokens(seed, 4000));
  const Cost again = run(first);
  EXPECT_EQ(again.answer, cold.answer);
  EXPECT_GT(again.computed, 16);
}

// The next turn of a conversation finds all whole blocks of the last one, wherever in a block that
// ended, though others have taken since what is not kept longest.
TEST_F(PrefixReuseFewBlocks, the_next_turn_finds_the_answer_wherever_it_ended) {
  for (int output = 300; output < 316; ++output) {
    std::vector<TokenId> tokens = random_tokens(static_cast<uint64_t>(output), 100);
    const std::vector<TokenId> answer = run(tokens, {.output = output}).answer;
    for (uint64_t other = 0; other < 3; ++other) {
      run(random_tokens(1'000 * static_cast<uint64_t>(output) + other, 512));
    }
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    const int computed = static_cast<int>(tokens.size()) - 1;  // the last token never was
    tokens.resize(tokens.size() + 40, 7);
    EXPECT_EQ(run(tokens).cached, computed / 16 * 16) << output << " tokens";
  }
}

// What every fourth prompt begins with is found whenever it was there before, wherever it ends:
// others take what is not kept longest, many times over.
TEST_F(PrefixReuseFewBlocks, what_prompts_begin_with_lasts_wherever_it_ends) {
  const std::vector<TokenId> first = random_tokens(1, 500);
  for (uint64_t round = 0; round < 40; ++round) {
    const Cost cost = run(branch(first, 215, 1'000 + round));
    // The first leaves all of it, the second parts from it, all later ones find it.
    if (round > 1) {
      EXPECT_EQ(cost.cached, 208) << "round " << round;
    }
    for (uint64_t other = 0; other < 3; ++other) run(random_tokens(10 * round + other + 2, 500));
  }
}

// And where its window blocks were evicted the next one computes them, and they last.
TEST_F(PrefixReuseFewBlocks, what_prompts_begin_with_comes_back) {
  const std::vector<TokenId> first = random_tokens(1, 500);
  run(branch(first, 215, 2));
  for (uint64_t other = 0; other < 30; ++other) run(random_tokens(10 + other, 500));
  EXPECT_LT(run(branch(first, 215, 3)).cached, 208);
  for (uint64_t other = 0; other < 3; ++other) run(random_tokens(50 + other, 500));
  EXPECT_EQ(run(branch(first, 215, 4)).cached, 208);
}

// What a prompt leaves behind to be kept longest does not depend on when its steps were committed:
// two steps that take longer than they used to are both collected before the next plan.
INSTANTIATE_TEST_SUITE_P(StepsAtOnce, PrefixReuseOneSlot, testing::Values(1, 2));

TEST_P(PrefixReuseOneSlot, a_prefix_checkpoint_outlives_an_other_prompt) {
  run(random_tokens(1, 512));
  const std::vector<TokenId> first = random_tokens(2, 600);
  EXPECT_EQ(run(first).computed, 600);
  EXPECT_EQ(run(random_tokens(3, 600)).computed, 600);
  EXPECT_EQ(run(branch(first, 520, 4)).computed, 600 - 512);
}

// Whoever keeps state beside the blocks (speculative/eagle3.h) learns whose may be shared: that of
// equal salts; where the cache is off a sequence's own and its siblings'.
TEST(PrefixReuseOrigin, TN_07_an_arrival_says_who_may_share) {
  for (const bool prefix_cache : {true, false}) {
    Scheduler scheduler(kUsual, {.prefix_cache = prefix_cache, .hash_seed = 1});
    for (const char* salt : {"a", "a", "b", ""}) {
      request::GenerationRequest request;
      request.prompt = random_tokens(1, 20);
      request.stop.max_new_tokens = 1;
      request.cache_salt = salt;
      ASSERT_TRUE(scheduler.submit(std::move(request)).ok());
    }
    const StepPlan plan = scheduler.plan(0);
    ASSERT_EQ(plan.arrivals.size(), 4u);
    const auto origin = [&](size_t i) { return plan.arrivals[i].origin; };
    EXPECT_EQ(origin(0) == origin(1), prefix_cache);
    EXPECT_FALSE(origin(0) == origin(2));
    EXPECT_FALSE(origin(0) == origin(3));
    EXPECT_FALSE(origin(3) == kv::BlockHash{});
  }
}

}  // namespace
}  // namespace pelton::engine
