#include "executor/batch_builder.h"

#include <gtest/gtest.h>

#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

TEST(BatchBuilder, RowsLieFlatOneAfterTheOther) {
  SlotTable slots(3);
  engine::StepPlan plan;
  add_row(plan, {.slot = 2, .start = 7, .sample = true});
  add_blocks(plan, 0, 0, {5});
  add_blocks(plan, 1, 0, {6});
  add_row(plan, {.slot = 0, .start = 16, .tokens = {4, 5, 6}});
  add_row(plan, {.slot = 1, .start = 0, .tokens = {1, 2}, .sample = true});
  slots.apply(plan);
  slots.append(2, 9, -1.0f);
  const Batch batch = build_batch(plan, slots, {}, 2);
  EXPECT_EQ(batch.input.tokens, (std::vector<TokenId>{9, 4, 5, 6, 1, 2}));
  EXPECT_EQ(batch.input.logit_rows, (std::vector<int>{0, 5}));
  EXPECT_EQ(batch.logit_sequences, (std::vector<size_t>{0, 2}));
  ASSERT_EQ(batch.input.sequences.size(), 3u);
  EXPECT_EQ(batch.input.sequences[1].start, 16);
  EXPECT_EQ(batch.input.sequences[1].count, 3);
  ASSERT_EQ(batch.input.sequences[0].tables.size(), 2);
  EXPECT_EQ(batch.input.sequences[0].tables[0][0], 5);
  EXPECT_EQ(batch.input.sequences[0].tables[1][0], 6);
}

TEST(BatchBuilder, GuessesHaveRowsAndLogits) {
  SlotTable slots(2);
  engine::StepPlan plan;
  add_row(plan, {.slot = 0, .start = 7, .tokens = {9}, .sample = true});
  add_row(plan, {.slot = 1, .start = 16, .tokens = {4, 5, 6}});
  slots.apply(plan);
  Drafts drafts;
  drafts.rows = {engine::append<TokenId>(drafts.tokens, std::vector<TokenId>{7, 8}), {}};
  const Batch batch = build_batch(plan, slots, drafts, 0);
  EXPECT_EQ(batch.input.tokens, (std::vector<TokenId>{9, 7, 8, 4, 5, 6}));
  EXPECT_EQ(batch.input.logit_rows, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(batch.logit_sequences, (std::vector<size_t>{0, 0, 0}));
  EXPECT_EQ(batch.input.sequences[0].count, 3);
  EXPECT_EQ(batch.input.sequences[1].start, 16);
}

// Its input is a row of the step before, which a device resolves.
TEST(BatchBuilder, ATokenThatIsBeingDrawnIsNamedByItsRow) {
  SlotTable slots(1);
  engine::StepPlan plan;
  add_row(plan, {.start = 3, .sample = true});
  slots.apply(plan);
  slots.expect_token(0, {.step = 1, .row = 4});
  EXPECT_EQ(build_batch(plan, slots, {}, 1).input.tokens, (std::vector<TokenId>{~4}));
}

TEST(BatchBuilder, WhatIsKnownAlreadyTakesNoLogits) {
  SlotTable slots(1);
  engine::StepPlan before;
  add_row(before, {.start = 3, .tokens = {1}, .sample = true});
  slots.apply(before);
  slots.append_known(before.sequences[0], 1, std::vector<TokenId>{2});
  engine::StepPlan plan;
  add_row(plan, {.start = 4, .sample = true});
  const Batch batch = build_batch(plan, slots, {}, 1);
  EXPECT_EQ(batch.input.tokens.size(), 1u);
  EXPECT_TRUE(batch.input.logit_rows.empty());
  EXPECT_TRUE(batch.logit_sequences.empty());
}

}  // namespace
}  // namespace pelton::executor
