#include "executor/step_overlap.h"

#include <gtest/gtest.h>

#include "executor/test_guide.h"
#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

using Source = SampledRow::Source;

// Slot 0 decodes in the running step, drawn on the device; slot 1 is not part of it.
class StepOverlap : public testing::Test {
 protected:
  StepOverlap() { add_row(running_, {.slot = 0, .tokens = {1}, .sample = true}); }

  void start() {
    slots_.apply(running_);
    grammars_.apply(running_);
    slots_.expect_token(0, {.step = running_.step, .row = 0});
  }
  bool may(const engine::StepPlan& next) const {
    return may_overlap(next, running_, rows_, slots_, grammars_);
  }
  static engine::StepPlan next_of(const TestRow& row) {
    engine::StepPlan plan;
    add_row(plan, row);
    return plan;
  }
  static engine::StepPlan decode() { return next_of({.slot = 0, .start = 1, .sample = true}); }

  base::ThreadPool pool_{{.threads = 1, .pin = false}};
  SlotTable slots_{2};
  SlotGrammars grammars_{{.slots = 2,
                          .sampling_slots = 2,
                          .vocab_size = 256,
                          .sampled_vocab = 256,
                          .work_max = INT64_MAX},
                         pool_};
  engine::StepPlan running_;
  std::vector<SampledRow> rows_{{.source = Source::kDevice}};
};

TEST_F(StepOverlap, ADecodeMayFollowADecode) {
  start();
  EXPECT_TRUE(may(decode()));
  EXPECT_TRUE(may(next_of({.slot = 1, .tokens = {1, 2}, .sample = true})));
}

TEST_F(StepOverlap, NotBehindRowsThatTheHostDrawsFrom) {
  start();
  for (const Source source : {Source::kLogits, Source::kHeld, Source::kDeferred, Source::kFailed}) {
    rows_[0].source = source;
    EXPECT_FALSE(may(decode()));
  }
}

TEST_F(StepOverlap, NotBehindScoresOrEmbeddings) {
  add_row(running_, {.slot = 1, .tokens = {1, 2}, .targets = {2}});
  start();
  EXPECT_FALSE(may(decode()));
  running_.sequences.back().targets.count = 0;
  EXPECT_TRUE(may(decode()));
  running_.sequences.back().embed = true;
  EXPECT_FALSE(may(decode()));
}

TEST_F(StepOverlap, NotWithCopiesOrWithoutRows) {
  start();
  engine::StepPlan next = decode();
  next.copies.push_back({});
  EXPECT_FALSE(may(next));
  EXPECT_FALSE(may(engine::StepPlan{}));
}

TEST_F(StepOverlap, NotWithScoresEmbeddingsOrWhatIsTheHosts) {
  start();
  EXPECT_FALSE(may(next_of({.slot = 1, .tokens = {1, 2}, .targets = {2}})));
  EXPECT_FALSE(may(next_of({.slot = 1, .tokens = {1}, .embed = true})));
  engine::StepPlan pooled = next_of({.slot = 1, .tokens = {1}});
  arrive(pooled).pooling = request::Pooling::kMean;
  EXPECT_FALSE(may(pooled));
  engine::StepPlan biased = next_of({.slot = 1, .tokens = {1}, .sample = true});
  arrive(biased).sampling.logit_bias = {{5, 1.0f}, {5, 1.0f}};
  EXPECT_FALSE(may(biased));
}

// The mask hangs on the token that is being drawn.
TEST_F(StepOverlap, NotWhereAGrammarWaitsForTheTokenThatIsBeingDrawn) {
  arrive(running_).guide = guide_of("root ::= [ab]+", 256);
  start();
  EXPECT_FALSE(may(decode()));
  EXPECT_TRUE(may(next_of({.slot = 1, .tokens = {1}, .sample = true})));
}

TEST_F(StepOverlap, NotWhereTheSlotChangesHandsMeanwhile) {
  start();
  engine::StepPlan next = next_of({.slot = 0, .tokens = {1}, .sample = true});
  arrive(next);
  EXPECT_FALSE(may(next));
}

TEST_F(StepOverlap, NotWithMoreEditsThanADeviceTakes) {
  start();
  engine::StepPlan next = decode();
  next.banned.assign(sampling::DeviceRows::kEditsMax, 3);
  EXPECT_TRUE(may(next));
  next.banned.push_back(3);
  EXPECT_FALSE(may(next));
}

}  // namespace
}  // namespace pelton::executor
