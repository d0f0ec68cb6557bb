// The modelled executor must notice what it is there to notice.
#include "engine/modelled_executor.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::engine {
namespace {

ModelledExecutor make_executor() {
  return ModelledExecutor({.capacity = {.block_tokens = 4,
                                        .full_block_count = 8,
                                        .window_block_count = 8,
                                        .window_tokens = 5,
                                        .sequences_max = 2,
                                        .batch_tokens_max = 16,
                                        .context_tokens_max = 24},
                           .next_token = checksum_tokens(1 << 20)});
}

PlannedSequence prefill(Seat seat, std::vector<TokenId> tokens, std::vector<BlockId> blocks) {
  PlannedSequence row;
  row.seat = seat;
  row.arrival = PlannedSequence::Arrival{};
  row.arrival->prompt_count = static_cast<int>(tokens.size());
  row.tokens = std::move(tokens);
  row.sample = true;
  row.full_blocks = blocks;
  row.window_blocks = std::move(blocks);
  return row;
}

PlannedSequence decode(Seat seat, int32_t start, TokenId token, std::vector<BlockId> blocks) {
  PlannedSequence row = prefill(seat, {token}, std::move(blocks));
  row.arrival.reset();
  row.start = start;
  return row;
}

TokenId step(ModelledExecutor& executor, int64_t number, std::vector<PlannedSequence> rows) {
  executor.submit({.step = number, .sequences = std::move(rows)});
  return executor.collect().sequences.at(0).tokens.at(0).token;
}

TEST(ModelledExecutor, the_token_depends_on_all_that_was_seen) {
  const auto after = [](std::vector<TokenId> prompt) {
    ModelledExecutor executor = make_executor();
    return step(executor, 0, {prefill(0, std::move(prompt), {0, 1})});
  };
  EXPECT_EQ(after({1, 2, 3, 4, 5, 6}), after({1, 2, 3, 4, 5, 6}));
  EXPECT_NE(after({1, 2, 3, 4, 5, 6}), after({9, 2, 3, 4, 5, 6}));  // outside the window
  EXPECT_NE(after({1, 2, 3, 4, 5, 6}), after({1, 2, 3, 4, 6, 5}));
  EXPECT_NE(after({1, 2, 3, 4, 5, 6}), after({1, 2, 3, 4, 5}));
}

TEST(ModelledExecutor, chunks_and_blocks_do_not_change_the_token) {
  ModelledExecutor whole = make_executor();
  const TokenId expected = step(whole, 0, {prefill(0, {1, 2, 3, 4, 5, 6}, {0, 1})});

  ModelledExecutor chunked = make_executor();
  PlannedSequence first = prefill(1, {1, 2, 3}, {7});
  first.arrival->prompt_count = 6;
  first.sample = false;
  chunked.submit({.step = 0, .sequences = {first}});
  PlannedSequence second = prefill(1, {4, 5, 6}, {7, 2});
  second.arrival.reset();
  second.start = 3;
  chunked.submit({.step = 1, .sequences = {second}});
  EXPECT_TRUE(chunked.collect().sequences.at(0).tokens.empty());
  EXPECT_EQ(chunked.collect().sequences.at(0).tokens.at(0).token, expected);
}

TEST(ModelledExecutor, an_overwritten_block_changes_the_token) {
  ModelledExecutor executor = make_executor();
  const TokenId first = step(executor, 0, {prefill(0, {1, 2, 3}, {0})});
  ModelledExecutor undisturbed = make_executor();
  step(undisturbed, 0, {prefill(0, {1, 2, 3}, {0})});
  step(executor, 1, {prefill(1, {4, 5, 6}, {0})});  // the block of the other, who is still there
  EXPECT_NE(step(executor, 2, {decode(0, 3, first, {0})}),
            step(undisturbed, 1, {decode(0, 3, first, {0})}));
}

TEST(ModelledExecutorDeathTest, broken_promises_are_noticed) {
  ModelledExecutor executor = make_executor();
  const TokenId token = step(executor, 0, {prefill(0, {1, 2, 3, 4, 5, 6}, {0, 1})});
  const auto row = [&] { return decode(0, 6, token, {0, 1}); };
  const auto dies = [&](std::vector<PlannedSequence> rows, const char* words) {
    EXPECT_DEATH(executor.submit({.step = 1, .sequences = std::move(rows)}), words);
  };

  dies({decode(0, 7, token, {0, 1})}, "must follow each other");
  dies({decode(0, 5, token, {0, 1})}, "must follow each other");
  dies({decode(0, 6, token, {0})}, "without a full block");
  dies({decode(0, 6, token, {0, 2})}, "holds other positions");
  dies({decode(5, 6, token, {0, 1})}, "no such seat");
  dies({row(), row()}, "two rows in one seat");
  dies({row(), prefill(1, {1, 2}, {1})}, "written is shared");
  dies({row(), prefill(1, std::vector<TokenId>(16, 1), {2, 3, 4, 5})}, "over its token budget");

  PlannedSequence blind = row();
  blind.window_blocks[0] = kNoBlock;  // the query at 6 sees 2..6
  dies({blind}, "without a window block");
  PlannedSequence stale = row();
  stale.tokens.clear();
  EXPECT_DEATH(executor.submit({.step = 2, .sequences = {stale}}), "sampled nothing");
  executor.submit({.step = 1, .sequences = {stale}});  // but right after it is fine
}

TEST(ModelledExecutor, a_step_takes_the_time_it_is_given) {
  base::VirtualClock clock;
  ModelledExecutor executor(
      {.capacity = make_executor().capacity(),
       .next_token = checksum_tokens(100),
       .timing = ModelledExecutor::Timing{
           .clock = &clock,
           .step_ns = [](const StepPlan& plan) { return plan.step == 0 ? 100 : 30; },
           .pass = [&](int64_t ns) { clock.advance_ns(ns); }}});
  executor.submit({.step = 0, .sequences = {prefill(0, {1, 2, 3}, {0})}});
  clock.advance_ns(40);
  executor.submit({.step = 1, .sequences = {prefill(1, {1, 2, 3}, {1})}});  // runs after the first
  executor.collect();
  EXPECT_EQ(clock.now_ns(), 100);
  executor.collect();
  EXPECT_EQ(clock.now_ns(), 130);
}

TEST(ModelledExecutor, scripts_and_bans) {
  const request::SamplingParams sampling{.seed = 3};
  const std::vector<TokenId> seen = {1, 2, 50};
  const ModelledExecutor::Seen two_in{.full = seen, .prompt_count = 2, .sampling = sampling};
  EXPECT_EQ(scripted_tokens({{3, {50, 60}}})(two_in), 60);
  EXPECT_EQ(scripted_tokens({{3, {50}}})(two_in), 50);

  const TokenId free = checksum_tokens(5)(two_in);
  const std::vector<TokenId> banned = {free};
  EXPECT_NE(
      checksum_tokens(5)({.full = seen, .prompt_count = 2, .sampling = sampling, .banned = banned}),
      free);
}

}  // namespace
}  // namespace pelton::engine
