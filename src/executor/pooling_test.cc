// Of single steps; embedding_test has whole prompts through a real model.
#include "executor/pooling.h"

#include <limits>

#include <gtest/gtest.h>

#include "executor/batch_builder.h"
#include "executor/fake_step_model.h"
#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

// State of a step's row r: {r, 10 r}.
class PoolingUnit : public testing::Test {
 protected:
  PoolingUnit() {
    model_.states = [](int row) {
      return std::vector<float>{static_cast<float>(row), 10.0f * static_cast<float>(row)};
    };
  }

  static void begin(engine::StepPlan& plan, request::Pooling kind) { arrive(plan).pooling = kind; }

  Result<void> pool(const engine::StepPlan& plan) {
    slots_.apply(plan);
    pooling_.apply(plan);
    result_ = {};
    result_.sequences.resize(plan.sequences.size());
    return pooling_.pool(plan, first_rows(plan, {}), slots_, model_, result_);
  }

  std::vector<float> embedding(size_t sequence) const {
    const auto floats = result_.sequences[sequence].embedding.of(result_.floats);
    return {floats.begin(), floats.end()};
  }

  SlotTable slots_{3};
  Pooling pooling_{{.slot_count = 3, .embedding_size = 2}};
  FakeStepModel model_;
  engine::StepResult result_;
};

TEST_F(PoolingUnit, TheLastStateIsThePromptsLast) {
  engine::StepPlan first;
  add_row(first, {.slot = 0, .tokens = {1, 2, 3}});
  begin(first, request::Pooling::kLast);
  ASSERT_TRUE(pool(first).ok());
  EXPECT_TRUE(embedding(0).empty());
  engine::StepPlan last;
  add_row(last, {.slot = 1, .tokens = {1}, .sample = true});  // another's, not pooled
  add_row(last, {.slot = 0, .start = 3, .tokens = {4, 5}, .embed = true});
  ASSERT_TRUE(pool(last).ok());
  EXPECT_TRUE(embedding(0).empty());
  EXPECT_EQ(embedding(1), (std::vector<float>{2, 20}));  // the step's row 2
}

TEST_F(PoolingUnit, AMeanIsOverAllChunks) {
  engine::StepPlan first;
  add_row(first, {.slot = 2, .tokens = {1, 2}});  // rows 0, 1
  begin(first, request::Pooling::kMean);
  ASSERT_TRUE(pool(first).ok());
  engine::StepPlan last;
  add_row(last, {.slot = 0, .tokens = {9}, .embed = true});  // row 0
  begin(last, request::Pooling::kMean);
  add_row(last, {.slot = 2, .start = 2, .tokens = {3, 4}, .embed = true});  // rows 1, 2
  ASSERT_TRUE(pool(last).ok());
  EXPECT_EQ(embedding(0), (std::vector<float>{0, 0}));
  EXPECT_EQ(embedding(1), (std::vector<float>{1, 10}));  // (0 + 1 + 1 + 2) / 4
}

TEST_F(PoolingUnit, AWeightIsOfEachTokenAlone) {
  // Of the step's row r: 1.5 + r - 10 r / 4, and never less than nothing.
  Pooling weighing(
      {.slot_count = 3, .embedding_size = 2, .sparse_head = SparseHead({1.0f, -0.25f}, 1.5f)});
  engine::StepPlan plan;
  add_row(plan, {.slot = 2, .tokens = {7, 7}, .embed = true});
  begin(plan, request::Pooling::kWeights);
  add_row(plan, {.slot = 1, .tokens = {5}, .embed = true});
  begin(plan, request::Pooling::kLast);
  slots_.apply(plan);
  weighing.apply(plan);
  result_.sequences.resize(2);
  ASSERT_TRUE(weighing.pool(plan, first_rows(plan, {}), slots_, model_, result_).ok());
  EXPECT_EQ(embedding(0), (std::vector<float>{1.5f, 0}));
  EXPECT_EQ(embedding(1), (std::vector<float>{2, 20}));
}

TEST_F(PoolingUnit, AnArrivalForgetsWhatThePromptBeforeItLeft) {
  for (int i = 0; i < 2; ++i) {
    engine::StepPlan plan;
    add_row(plan, {.tokens = {1, 2, 3}});
    begin(plan, request::Pooling::kMean);
    ASSERT_TRUE(pool(plan).ok());
  }
  engine::StepPlan last;
  add_row(last, {.start = 3, .tokens = {4}, .embed = true});
  ASSERT_TRUE(pool(last).ok());
  EXPECT_EQ(embedding(0), (std::vector<float>{0.75f, 7.5f}));  // (0 + 1 + 2 + 0) / 4
}

TEST_F(PoolingUnit, AStateThatIsNoNumberFailsItsSequenceAlone) {
  model_.states = [](int row) {
    const float value = row == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    return std::vector<float>{1.0f, value};
  };
  engine::StepPlan plan;
  for (const engine::Slot slot : {0, 1}) {
    add_row(plan, {.slot = slot, .tokens = {1}, .embed = true});
    begin(plan, request::Pooling::kLast);
  }
  ASSERT_TRUE(pool(plan).ok());
  ASSERT_NE(result_.sequences[0].error, nullptr);
  EXPECT_EQ(result_.sequences[0].error->code, ErrorCode::kBadCheckpoint);
  EXPECT_EQ(result_.sequences[1].error, nullptr);
  EXPECT_EQ(embedding(1), (std::vector<float>{1, 1}));
}

TEST_F(PoolingUnit, AModelThatCannotFailsTheStep) {
  model_.error = Error{ErrorCode::kInternal, "no device", ""};
  engine::StepPlan plan;
  add_row(plan, {.tokens = {1}, .embed = true});
  begin(plan, request::Pooling::kLast);
  const Result<void> pooled = pool(plan);
  ASSERT_FALSE(pooled.ok());
  EXPECT_EQ(pooled.error().message, "no device");
}

}  // namespace
}  // namespace pelton::executor
