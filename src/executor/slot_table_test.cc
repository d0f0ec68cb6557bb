#include "executor/slot_table.h"

#include <gtest/gtest.h>

#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

TEST(SlotTable, AnArrivalTakesTheSlotOfTheOneBefore) {
  SlotTable slots(2);
  engine::StepPlan first;
  add_row(first, {.slot = 1, .tokens = {3, 4}, .sample = true});
  auto& request = arrive(first);
  request.sampling.frequency_penalty = 0.5f;
  request.history = {3, 4, 7, 7};
  request.prompt_count = 2;
  slots.apply(first);
  EXPECT_EQ(slots[1].history.counts().at(7).in_output, 2);
  EXPECT_TRUE(slots[1].history.counts().at(3).in_prompt);
  EXPECT_EQ(slots[1].history.counts().at(3).in_output, 0);
  slots.append_known(first.sequences[0], 1, std::vector<TokenId>{5, 6});
  EXPECT_EQ(slots[1].known_tokens, 5);

  engine::StepPlan second;
  add_row(second, {.slot = 1, .tokens = {9}, .embed = true});
  arrive(second).pooling = request::Pooling::kMean;
  slots.apply(second);
  EXPECT_FALSE(slots[1].sampling.has_penalties());
  EXPECT_TRUE(slots[1].history.counts().empty());
  EXPECT_EQ(slots[1].known_tokens, 0);
  EXPECT_EQ(slots[1].pooling, request::Pooling::kMean);
}

TEST(SlotTable, TablesGrowAsRowsSay) {
  SlotTable slots(1);
  engine::StepPlan first;
  add_row(first, {.tokens = {1}});
  add_blocks(first, 0, 0, {10, 11});
  add_blocks(first, 1, 0, {20});
  slots.apply(first);
  engine::StepPlan second;
  add_row(second, {.start = 1, .tokens = {1}});
  add_blocks(second, 0, 2, {12});
  slots.apply(second);
  EXPECT_EQ(slots[0].tables.of(0), (std::vector<engine::BlockId>{10, 11, 12}));
  EXPECT_EQ(slots[0].tables.of(1), (std::vector<engine::BlockId>{20}));
}

TEST(SlotTable, PenaltiesCountWhatIsAppended) {
  SlotTable slots(2);
  engine::StepPlan plan;
  add_row(plan, {.slot = 0, .tokens = {1}, .sample = true});
  arrive(plan).sampling.presence_penalty = 1.0f;
  add_row(plan, {.slot = 1, .tokens = {1}, .sample = true});
  arrive(plan);
  slots.apply(plan);
  for (const engine::ScheduledRow& row : plan.sequences) {
    slots.append(row.slot, 8, -1.0f);
    slots.append_known(row, 1, std::vector<TokenId>{8, 9});
  }
  EXPECT_EQ(slots[0].history.counts().at(8).in_output, 2);
  EXPECT_EQ(slots[0].history.counts().at(9).in_output, 1);
  EXPECT_TRUE(slots[1].history.counts().empty());  // nobody counts
}

// A row that was planned before it was known what a grammar forces: its token is known already.
TEST(SlotTable, ARowBeforeTheKnownTokensSamplesNothing) {
  SlotTable slots(1);
  engine::StepPlan plan;
  add_row(plan, {.start = 4, .tokens = {1}, .sample = true});
  arrive(plan);
  slots.apply(plan);
  EXPECT_TRUE(slots.samples(plan.sequences[0]));
  slots.append(0, 2, -1.0f);                                             // of position 5
  slots.append_known(plan.sequences[0], 1, std::vector<TokenId>{3, 4});  // 6 and 7: 8 are known
  const auto samples = [&](int start, std::vector<TokenId> tokens) {
    engine::StepPlan next;
    add_row(next, {.start = start, .tokens = std::move(tokens), .sample = true});
    return slots.samples(next.sequences[0]);
  };
  EXPECT_FALSE(samples(5, {}));
  EXPECT_TRUE(samples(5, {2, 3, 4}));  // ends behind the last known token
}

TEST(SlotTable, ATokenThatIsBeingDrawnIsNamedByItsRow) {
  SlotTable slots(1);
  slots.append(0, 42, -1.0f);
  EXPECT_EQ(slots.input_token(0), 42);
  EXPECT_EQ(slots.expect_token(0, {.step = 1, .row = 3}), -1);
  EXPECT_EQ(slots.input_token(0), ~3);
  EXPECT_EQ(slots.expect_token(0, {.step = 2, .row = 0}), 3);
  slots.stop_expecting(0, 1);  // by now it is the second step's row that is awaited
  EXPECT_EQ(slots.input_token(0), ~0);
  slots.stop_expecting(0, 2);
  EXPECT_EQ(slots.input_token(0), 42);
}

}  // namespace
}  // namespace pelton::executor
