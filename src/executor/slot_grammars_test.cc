// Of one slot's rows; guide_work_test has the work beside the steps.
#include "executor/slot_grammars.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "executor/test_guide.h"
#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

using Next = SlotGrammars::Next;

constexpr int kVocab = 256;

class SlotGrammarsUnit : public testing::Test {
 protected:
  void start(int64_t work_max) {
    grammars_ = std::make_unique<SlotGrammars>(SlotGrammars::Options{.slots = 3,
                                                                     .sampling_slots = 2,
                                                                     .vocab_size = kVocab,
                                                                     .sampled_vocab = kVocab,
                                                                     .work_max = work_max},
                                               pool_);
  }

  // A prompt that ends: with a grammar, and with what was generated before a preemption.
  void arrive_with(engine::Slot slot, std::string_view ebnf, std::vector<TokenId> generated = {}) {
    engine::StepPlan plan;
    add_row(plan, {.slot = slot, .tokens = {1}, .sample = true});
    auto& request = arrive(plan);
    request.guide = guide_of(ebnf, kVocab);
    request.history = {1};
    request.prompt_count = 1;
    request.history.insert(request.history.end(), generated.begin(), generated.end());
    grammars_->apply(plan);
  }

  // The sequence's next row: planned with the token, or blindly.
  void next_row(std::vector<TokenId> tokens) {
    engine::StepPlan plan;
    add_row(plan, {.start = 1, .tokens = std::move(tokens), .sample = true});
    grammars_->apply(plan);
  }

  void wait_for_deferred() const {
    while (!grammars_->deferral(0)->is_over) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Of slot 0's row, which is planned again for as long as it is deferred.
  Next next_in_the_end(TokenId forced) {
    for (;;) {
      const Next next = grammars_->next(0, forced);
      if (next != Next::kDefer) return next;
      wait_for_deferred();
      next_row({1});
    }
  }

  std::string allowed(engine::Slot slot) const {
    std::string letters;
    for (TokenId token = 0; token < kVocab; ++token) {
      if (grammar::may_be(grammars_->allowed(slot), token)) letters += static_cast<char>(token);
    }
    return letters;
  }

  base::ThreadPool pool_{{.threads = 1, .pin = false}};
  std::unique_ptr<SlotGrammars> grammars_;
};

TEST_F(SlotGrammarsUnit, AGrammarSaysWhatMayFollowAndWhatMust) {
  start(INT64_MAX);
  arrive_with(0, "root ::= (\"abb\" | \"cde\") [xy]");
  EXPECT_TRUE(grammars_->active(0));
  EXPECT_FALSE(grammars_->active(1));
  ASSERT_EQ(grammars_->next(0, engine::kNotForced), Next::kDraw);
  EXPECT_EQ(allowed(0), "ac");
  ASSERT_EQ(grammars_->accept(0, {.token = 'c'}, 16), Next::kDraw);
  EXPECT_EQ(grammars_->take_forced(0), (std::vector<TokenId>{'d'}));
  ASSERT_EQ(grammars_->next(0, engine::kNotForced), Next::kDraw);
  EXPECT_EQ(allowed(0), "e");  // the last one of a text may be part of a longer token
}

TEST_F(SlotGrammarsUnit, NothingIsForcedWhereNobodyMayJump) {
  start(INT64_MAX);
  arrive_with(0, "root ::= \"abc\"");
  ASSERT_EQ(grammars_->next(0, engine::kNotForced), Next::kDraw);
  ASSERT_EQ(grammars_->accept(0, {.token = 'a'}, 0), Next::kDraw);
  EXPECT_TRUE(grammars_->take_forced(0).empty());
}

TEST_F(SlotGrammarsUnit, AfterAPreemptionItGoesOnBehindWhatWasGenerated) {
  start(INT64_MAX);
  arrive_with(1, "root ::= [ab] [cd] [ef]", {'a', 'd'});
  ASSERT_EQ(grammars_->next(1, engine::kNotForced), Next::kDraw);
  EXPECT_EQ(allowed(1), "ef");
}

TEST_F(SlotGrammarsUnit, GuessesThatMayNotComeAreCutOffWithAllBehind) {
  start(INT64_MAX);
  arrive_with(0, "root ::= (\"abb\" | \"cde\") [xy]");
  engine::StepPlan plan;
  add_row(plan, {.slot = 0, .start = 1, .sample = true});
  add_row(plan, {.slot = 1, .start = 1, .sample = true});  // without a grammar
  grammars_->fill_masks(plan);
  const auto cut = [&](std::vector<TokenId> guesses) {
    Drafts drafts;
    drafts.rows.push_back(engine::append<TokenId>(drafts.tokens, guesses));
    drafts.rows.push_back(engine::append<TokenId>(drafts.tokens, std::vector<TokenId>{'z', 'z'}));
    grammars_->cut(plan, drafts);
    EXPECT_EQ(drafts.of(1).size(), 2u);
    return std::string(drafts.of(0).begin(), drafts.of(0).end());
  };
  EXPECT_EQ(cut({'z', 'b'}), "");
  EXPECT_EQ(cut({'c', 'd', 'z', 'y'}), "cd");
  EXPECT_EQ(cut({'a', 'b', 'b', 'y'}), "abby");
  EXPECT_EQ(cut({'a', 'b', 'b', 'y', 'a'}), "abby");  // nothing comes behind the end
  EXPECT_EQ(allowed(0), "ac");  // where the grammar stands nothing has changed
  ASSERT_EQ(grammars_->accept(0, {.token = 'a'}, 0), Next::kDraw);
  EXPECT_EQ(cut({'z'}), "z");  // not known before the mask is: it counts as what may come
}

// With no work granted everything is found out beside the steps: the row is deferred, what was
// drawn is held, and given when the row is planned again.
TEST_F(SlotGrammarsUnit, WhatTakesLongerThanAStepIsDeferred) {
  start(0);
  arrive_with(0, "root ::= [ab] \"cde\" [fg]");
  ASSERT_EQ(next_in_the_end(engine::kNotForced), Next::kDraw);
  EXPECT_EQ(allowed(0), "ab");
  ASSERT_EQ(grammars_->accept(0, {.token = 'b', .logprob = -0.5f}, 16), Next::kDefer);
  EXPECT_EQ(grammars_->next(0, engine::kNotForced), Next::kDefer);  // a row planned behind it
  wait_for_deferred();
  next_row({1});
  ASSERT_EQ(grammars_->next(0, engine::kNotForced), Next::kHeld);
  EXPECT_EQ(grammars_->held(0).token, 'b');
  EXPECT_EQ(grammars_->held(0).logprob, -0.5f);
  EXPECT_EQ(grammars_->take_forced(0), (std::vector<TokenId>{'c', 'd'}));
  ASSERT_EQ(grammars_->next(0, engine::kNotForced), Next::kDraw);  // no longer held
  EXPECT_EQ(allowed(0), "e");
}

// The scheduler put another token there since the held one was drawn.
TEST_F(SlotGrammarsUnit, AnotherTokenThatIsForcedTakesTheHeldOnesPlace) {
  start(0);
  arrive_with(0, "root ::= [ab] [cd]");
  ASSERT_EQ(next_in_the_end(engine::kNotForced), Next::kDraw);
  ASSERT_EQ(grammars_->accept(0, {.token = 'b'}, 0), Next::kDefer);
  next_row({1});
  ASSERT_EQ(next_in_the_end('a'), Next::kDraw);
  EXPECT_EQ(allowed(0), "ab");  // as before the held one
}

TEST_F(SlotGrammarsUnit, AGrammarWithoutAWayOnFails) {
  start(INT64_MAX);
  arrive_with(1, "root ::= \"a\"", {'b'});  // never allowed
  EXPECT_EQ(grammars_->next(1, engine::kNotForced), Next::kFail);
  EXPECT_EQ(grammars_->error(1).code, ErrorCode::kUnsupported);
}

TEST_F(SlotGrammarsUnit, AnArrivalWithoutAGrammarIsFree) {
  start(INT64_MAX);
  arrive_with(0, "root ::= \"ab\"");
  engine::StepPlan plan;
  add_row(plan, {.tokens = {1}, .sample = true});
  arrive(plan);
  grammars_->apply(plan);
  EXPECT_FALSE(grammars_->active(0));
}

// Between two steps; whoever samples then has nothing to wait for.
TEST_F(SlotGrammarsUnit, MasksAreFilledForTheRowsOfAPlan) {
  start(0);
  arrive_with(0, "root ::= [ab]");
  engine::StepPlan plan;
  add_row(plan, {.tokens = {1}, .sample = true});
  add_row(plan, {.slot = 1, .tokens = {1}, .sample = true});  // has none
  grammars_->fill_masks(plan);
  ASSERT_EQ(next_in_the_end(engine::kNotForced), Next::kDraw);
  EXPECT_EQ(allowed(0), "ab");
}

}  // namespace
}  // namespace pelton::executor
