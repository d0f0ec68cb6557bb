// The modelled executor must notice what it is there to notice.
#include "engine/modelled_executor.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::engine {
namespace {

ModelledExecutor make_executor() {
  return ModelledExecutor(
      {.capacity = {.block_tokens = 4,
                    .groups = {{{.name = "full"}, {8, 2}},
                               {{.name = "window", .sliding_window = 5}, {8, 2}}},

                    .sequences_max = 2,
                    .batch_tokens_max = 16,
                    .context_tokens_max = 24},
       .next_token = checksum_tokens(1 << 20)});
}

// A row before it is flat.
struct Row {
  Slot slot = 0;
  std::optional<Arrival> arrival;
  int32_t start = 0;
  std::vector<TokenId> tokens;
  bool sample = true;
  kv::PerGroup<std::vector<BlockId>> tables;
};

StepPlan make_plan(int64_t step, const std::vector<Row>& rows) {
  StepPlan plan;
  plan.step = step;
  for (const Row& row : rows) {
    ScheduledRow& planned = plan.sequences.emplace_back();
    planned.slot = row.slot;
    if (row.arrival) {
      planned.arrival = static_cast<int32_t>(plan.arrivals.size());
      plan.arrivals.push_back(*row.arrival);
    }
    planned.start = row.start;
    planned.sample = row.sample;
    planned.tokens = append(plan.tokens, std::span(row.tokens));
    planned.table_updates = {static_cast<int32_t>(plan.table_updates.size()), row.tables.size()};
    for (int group = 0; group < row.tables.size(); ++group) {
      const std::span<const BlockId> blocks = row.tables[group];
      plan.table_updates.push_back({.group = group, .blocks = append(plan.blocks, blocks)});
    }
  }
  return plan;
}

Row prefill(Slot slot, std::vector<TokenId> tokens, std::vector<BlockId> blocks) {
  Row row;
  row.slot = slot;
  row.arrival = Arrival{};
  row.arrival->prompt_count = static_cast<int>(tokens.size());
  row.tokens = std::move(tokens);
  row.tables = {blocks, blocks};
  return row;
}

Row decode(Slot slot, int32_t start, TokenId token, std::vector<BlockId> blocks) {
  Row row = prefill(slot, {token}, std::move(blocks));
  row.arrival.reset();
  row.start = start;
  return row;
}

TokenId step(ModelledExecutor& executor, int64_t number, const std::vector<Row>& rows) {
  executor.submit(make_plan(number, rows));
  return executor.collect().tokens.at(0).token;
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
  Row first = prefill(1, {1, 2, 3}, {7});
  first.arrival->prompt_count = 6;
  first.sample = false;
  chunked.submit(make_plan(0, {first}));
  Row second = prefill(1, {4, 5, 6}, {7, 2});
  second.arrival.reset();
  second.start = 3;
  chunked.submit(make_plan(1, {second}));
  EXPECT_TRUE(chunked.collect().tokens.empty());
  EXPECT_EQ(chunked.collect().tokens.at(0).token, expected);
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

// Of both groups: block `from` of one tier becomes block `to` of the other.
void copy(StepPlan& plan, kv::Tier to_tier, BlockId from, BlockId to) {
  for (const int group : {0, 1}) {
    const kv::Tier from_tier = to_tier == kv::kHost ? kv::kDevice : kv::kHost;
    plan.copies.push_back(
        {.group = group, .from_tier = from_tier, .to_tier = to_tier, .from = from, .to = to});
  }
}

// Copies go before rows, and one after the other: out of block 0, over it, and back into block 5.
TEST(ModelledExecutor, copies_are_carried_out_in_order_and_first) {
  ModelledExecutor executor = make_executor();
  const TokenId first = step(executor, 0, {prefill(0, {1, 2, 3}, {0})});
  ModelledExecutor undisturbed = make_executor();
  step(undisturbed, 0, {prefill(0, {1, 2, 3}, {0})});
  StepPlan plan = make_plan(1, {prefill(1, {7, 8, 9}, {0}), decode(0, 3, first, {5})});
  copy(plan, kv::kHost, 0, 1);
  copy(plan, kv::kDevice, 1, 5);
  executor.submit(std::move(plan));
  EXPECT_EQ(executor.collect().tokens.at(1).token,
            step(undisturbed, 1, {decode(0, 3, first, {0})}));
}

TEST(ModelledExecutor, a_plan_may_be_copies_alone) {
  ModelledExecutor executor = make_executor();
  StepPlan plan = make_plan(0, {});
  copy(plan, kv::kHost, 0, 1);
  executor.submit(std::move(plan));
  EXPECT_TRUE(executor.collect().sequences.empty());
}

TEST(ModelledExecutorDeathTest, what_a_failed_step_copied_is_of_no_use) {
  ModelledExecutor executor({.capacity = make_executor().capacity(),
                             .next_token = checksum_tokens(100),
                             .fail_step = [](const StepPlan& plan) -> std::optional<Error> {
                               if (plan.step != 1) return std::nullopt;
                               return Error{ErrorCode::kInternal, "as asked"};
                             }});
  const TokenId first = step(executor, 0, {prefill(0, {1, 2, 3}, {0})});
  StepPlan out = make_plan(1, {});
  copy(out, kv::kHost, 0, 1);
  executor.submit(std::move(out));
  EXPECT_TRUE(executor.collect().error.has_value());
  StepPlan back = make_plan(2, {decode(0, 3, first, {5})});
  copy(back, kv::kDevice, 1, 5);
  EXPECT_DEATH(executor.submit(std::move(back)), "holds other positions");
  StepPlan nowhere = make_plan(2, {});
  copy(nowhere, kv::kHost, 0, 2);
  EXPECT_DEATH(executor.submit(std::move(nowhere)), "copying to no block");
}

TEST(ModelledExecutorDeathTest, broken_promises_are_noticed) {
  ModelledExecutor executor = make_executor();
  const TokenId token = step(executor, 0, {prefill(0, {1, 2, 3, 4, 5, 6}, {0, 1})});
  const auto row = [&] { return decode(0, 6, token, {0, 1}); };
  const auto dies = [&](const std::vector<Row>& rows, const char* words) {
    EXPECT_DEATH(executor.submit(make_plan(1, rows)), words);
  };

  dies({decode(0, 7, token, {0, 1})}, "must follow each other");
  dies({decode(0, 5, token, {0, 1})}, "must follow each other");
  dies({decode(0, 6, token, {0})}, "without a full block");
  dies({decode(0, 6, token, {0, 2})}, "holds other positions");
  dies({decode(5, 6, token, {0, 1})}, "no such slot");
  dies({row(), row()}, "two rows in one slot");
  dies({row(), prefill(1, {1, 2}, {1})}, "written is shared");
  dies({row(), prefill(1, std::vector<TokenId>(16, 1), {2, 3, 4, 5})}, "over its token budget");

  Row blind = row();
  blind.tables[1][0] = kNoBlock;  // the query at 6 sees 2..6
  dies({blind}, "without a window block");
  Row stale = row();
  stale.tokens.clear();
  EXPECT_DEATH(executor.submit(make_plan(2, {stale})), "sampled nothing");
  executor.submit(make_plan(1, {stale}));  // but right after it is fine
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
  executor.submit(make_plan(0, {prefill(0, {1, 2, 3}, {0})}));
  clock.advance_ns(40);
  executor.submit(make_plan(1, {prefill(1, {1, 2, 3}, {1})}));  // runs after the first
  executor.collect();
  EXPECT_EQ(clock.now_ns(), 100);
  executor.collect();
  EXPECT_EQ(clock.now_ns(), 130);
}

TEST(ModelledExecutor, scripts_and_bans) {
  const request::SamplingParams sampling{.seed = 3};
  const std::vector<TokenId> seen = {1, 2, 50};
  const ModelledExecutor::Seen two_in{
      .tokens = seen, .by_group = {seen}, .prompt_count = 2, .sampling = sampling};
  EXPECT_EQ(scripted_tokens({{3, {50, 60}}})(two_in), 60);
  EXPECT_EQ(scripted_tokens({{3, {50}}})(two_in), 50);

  const TokenId free = checksum_tokens(5)(two_in);
  const std::vector<TokenId> banned = {free};
  EXPECT_NE(checksum_tokens(5)({.tokens = seen,
                                .by_group = {seen},
                                .prompt_count = 2,
                                .sampling = sampling,
                                .banned = banned}),
            free);
}

}  // namespace
}  // namespace pelton::engine
