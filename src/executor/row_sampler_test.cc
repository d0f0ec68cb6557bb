// Rows of logits made up by hand; same_answers_test has a model's.
#include "executor/row_sampler.h"

#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "executor/test_guide.h"
#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

constexpr int kVocab = 256;

class RowSamplerUnit : public testing::Test {
 protected:
  explicit RowSamplerUnit(int64_t work_max = INT64_MAX)
      : grammars_({.slots = kSlots,
                   .sampling_slots = kSlots,
                   .vocab_size = kVocab,
                   .sampled_vocab = kVocab,
                   .work_max = work_max},
                  pool_) {
    for (sampling::Sampler& sampler : samplers_) sampler.reserve(kVocab);
  }

  // A sequence whose prompt ends with this row; greedy.
  request::SamplingParams& begin(engine::StepPlan& plan, const TestRow& row,
                                 std::string_view ebnf = {}) {
    add_row(plan, row);
    auto& request = arrive(plan);
    request.sampling.temperature = 0;
    request.sampling.logprobs = -1;
    if (!ebnf.empty()) request.guide = guide_of(ebnf, kVocab);
    return request.sampling;
  }

  // Carries out the plan; best: of each row of logits the likeliest token, then the next ones.
  void step(const engine::StepPlan& plan, const std::vector<std::string>& best) {
    slots_.apply(plan);
    grammars_.apply(plan);
    result_ = {};
    const Batch batch = build_batch(plan, slots_, drafts_, 0);
    rows_ = sampler_.list(plan, batch, drafts_, result_);
    ASSERT_EQ(batch.logit_sequences.size(), best.size());
    std::vector<float> logits(best.size() * kVocab, 0.0f);
    for (size_t row = 0; row < best.size(); ++row) {
      for (size_t i = 0; i < best[row].size(); ++i) {
        logits[row * kVocab + static_cast<uint8_t>(best[row][i])] = 10.0f - static_cast<float>(i);
      }
      if (best[row].empty()) logits[row * kVocab] = std::nanf("");
    }
    sampler_.sample(plan, rows_, nullptr, logits.data(), result_);
  }

  std::string tokens(size_t sequence) const {
    std::string text;
    for (const auto& token : result_.sequences[sequence].tokens.of(result_.tokens)) {
      text += static_cast<char>(token.token);
    }
    return text;
  }

  static constexpr int kSlots = 4;
  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::vector<sampling::Sampler> samplers_{2};
  SlotTable slots_{kSlots};
  SlotGrammars grammars_;
  RowSampler sampler_{{.vocab_size = kVocab, .sampled_vocab = kVocab, .draws_rejected = true},
                      pool_,
                      samplers_,
                      slots_,
                      grammars_};
  // Behind the plan's rows, in order.
  void guess(const std::vector<std::string>& guesses) {
    drafts_ = {};
    for (const std::string& one : guesses) {
      const std::vector<TokenId> tokens(one.begin(), one.end());
      drafts_.rows.push_back(engine::append<TokenId>(drafts_.tokens, tokens));
    }
  }

  Drafts drafts_;
  std::vector<SampledRow> rows_;
  engine::StepResult result_;
};

TEST_F(RowSamplerUnit, EachSequenceGetsTheTokenOfItsRow) {
  engine::StepPlan plan;
  begin(plan, {.slot = 2, .tokens = {1}, .sample = true});
  begin(plan, {.slot = 0, .tokens = {1, 2}});  // a chunk of a prompt
  begin(plan, {.slot = 3, .tokens = {1, 2}, .sample = true});
  step(plan, {"a", "b"});
  EXPECT_EQ(tokens(0), "a");
  EXPECT_EQ(tokens(1), "");
  EXPECT_EQ(tokens(2), "b");
  EXPECT_EQ(result_.sequences[2].slot, 3);
  EXPECT_EQ(slots_.input_token(2), 'a');  // no longer being drawn
  EXPECT_EQ(slots_.input_token(3), 'b');
}

TEST_F(RowSamplerUnit, SuppressedTokensAreNotDrawnAndForcedOnesAre) {
  engine::StepPlan plan;
  begin(plan, {.slot = 0, .tokens = {1}, .suppressed = {'a'}, .sample = true});
  begin(plan, {.slot = 1, .tokens = {1}, .suppressed = {'z'}, .forced = 'z', .sample = true});
  step(plan, {"ab", "ab"});
  EXPECT_EQ(tokens(0), "b");
  EXPECT_EQ(tokens(1), "z");
}

// What a proposer may have: drawn at rows whose input is not the sequence's.
TEST_F(RowSamplerUnit, RowsBehindAWrongGuessAreDrawnToo) {
  engine::StepPlan plan;
  begin(plan, {.slot = 0, .tokens = {1}, .sample = true});
  begin(plan, {.slot = 1, .tokens = {1}, .sample = true});
  begin(plan, {.slot = 2, .tokens = {1}, .sample = true});
  guess({"abc", "ab", ""});
  step(plan, {"a", "x", "y", "z", "a", "b", "c", "q"});
  EXPECT_EQ(tokens(0), "ax");
  EXPECT_EQ(rows_[0].rejected, (std::vector<TokenId>{'y', 'z'}));
  EXPECT_EQ(tokens(1), "abc");  // all right: none
  EXPECT_TRUE(rows_[1].rejected.empty());
  EXPECT_TRUE(rows_[2].rejected.empty());
  // A row without numbers ends them, and costs the sequence nothing.
  engine::StepPlan next;
  add_row(next, {.slot = 0, .start = 2, .sample = true});
  guess({"abc"});
  step(next, {"z", "y", "", "z"});
  EXPECT_EQ(tokens(0), "z");
  EXPECT_EQ(rows_[0].rejected, (std::vector<TokenId>{'y'}));
}

TEST_F(RowSamplerUnit, PenaltiesSeeWhatWasDrawnBefore) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true}).frequency_penalty = 2.0f;
  step(plan, {"ab"});
  EXPECT_EQ(tokens(0), "a");
  engine::StepPlan next;
  add_row(next, {.start = 1, .sample = true});
  step(next, {"ab"});
  EXPECT_EQ(tokens(0), "b");
}

TEST_F(RowSamplerUnit, AGrammarMasksTheRowAndWhatMustFollowComesAlong) {
  engine::StepPlan plan;
  begin(plan, {.slot = 0, .tokens = {1}, .sample = true}, "root ::= (\"cde\" | \"fgh\") [xy]");
  begin(plan, {.slot = 1, .tokens = {1}, .sample = true});
  step(plan, {"afc", "afc"});
  EXPECT_EQ(tokens(0), "fg");
  EXPECT_EQ(tokens(1), "a");
  EXPECT_EQ(slots_[0].known_tokens, 3);  // the prompt's one and these two
}

// The log-probability of a token that no row computed is not known.
TEST_F(RowSamplerUnit, WhoeverWantsLogprobsGetsNoJump) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true}, "root ::= \"cde\"").logprobs = 0;
  step(plan, {"a"});
  EXPECT_EQ(tokens(0), "c");
  EXPECT_EQ(slots_[0].known_tokens, 0);
}

TEST_F(RowSamplerUnit, AForcedTokenThatTheGrammarForbidsIsNotDrawn) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .forced = 'z', .sample = true}, "root ::= [cd] [ef]");
  step(plan, {"zd"});
  EXPECT_EQ(tokens(0), "d");
}

// A stop token that is suppressed for min_tokens, and all that the grammar leaves.
TEST_F(RowSamplerUnit, AnEndThatMustComeComesThoughItIsSuppressed) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .suppressed = {'c'}, .sample = true}, "root ::= \"c\"");
  step(plan, {"a"});
  EXPECT_EQ(tokens(0), "c");
}

TEST_F(RowSamplerUnit, ARowThatIsNoNumbersFailsItsSequenceAlone) {
  engine::StepPlan plan;
  begin(plan, {.slot = 0, .tokens = {1}, .sample = true});
  begin(plan, {.slot = 1, .tokens = {1}, .sample = true});
  step(plan, {"", "b"});
  ASSERT_NE(result_.sequences[0].error, nullptr);
  EXPECT_EQ(result_.sequences[0].error->code, ErrorCode::kBadCheckpoint);
  EXPECT_EQ(tokens(0), "");
  EXPECT_EQ(tokens(1), "b");
}

TEST_F(RowSamplerUnit, GuessesCountWhileTheyAreWhatIsDrawn) {
  engine::StepPlan plan;
  begin(plan, {.slot = 0, .tokens = {1}, .sample = true});
  begin(plan, {.slot = 1, .tokens = {1, 2}});
  begin(plan, {.slot = 2, .tokens = {1}, .sample = true});
  guess({"xyz", "", "p"});
  step(plan, {"x", "y", "w", "z", "q", "r"});
  EXPECT_EQ(tokens(0), "xyw");  // z was not drawn
  EXPECT_EQ(result_.sequences[0].drafted, 3);
  EXPECT_EQ(result_.sequences[0].accepted, 2);
  EXPECT_EQ(tokens(1), "");
  EXPECT_EQ(tokens(2), "q");
  EXPECT_EQ(result_.sequences[2].accepted, 0);
  EXPECT_EQ(slots_.input_token(0), 'w');
}

TEST_F(RowSamplerUnit, WhereAllGuessesAreRightTheLastRowGivesOneMore) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true});
  guess({"xy"});
  step(plan, {"x", "y", "z"});
  EXPECT_EQ(tokens(0), "xyz");
  EXPECT_EQ(result_.sequences[0].accepted, 2);
}

TEST_F(RowSamplerUnit, PenaltiesSeeTheGuessesBefore) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true}).frequency_penalty = 2.0f;
  guess({"aa"});
  step(plan, {"ab", "ab", "ab"});
  EXPECT_EQ(tokens(0), "ab");  // a second a is less likely than b
}

TEST_F(RowSamplerUnit, WhatIsSuppressedIsSoUpToAPosition) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .suppressed = {'a'}, .sample = true});
  plan.sequences[0].banned_end = 3;  // the tokens at 1 and 2
  guess({"bba"});
  step(plan, {"ab", "ab", "ab", "ab"});
  EXPECT_EQ(tokens(0), "bbaa");
}

// c d e must follow each other: what the grammar forces is emitted with c, and agrees with the
// guesses.
TEST_F(RowSamplerUnit, AGrammarGoesOverGuessesAndWhatMustFollow) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true}, "root ::= \"cde\" [xy] [xy]");
  guess({"cdex"});
  step(plan, {"c", "", "e", "y", "x"});  // nobody looks at the row of d, which is forced
  EXPECT_EQ(tokens(0).substr(0, 3), "cde");
  EXPECT_EQ(tokens(0)[3], 'y');
  EXPECT_EQ(tokens(0).size(), 4u);
  EXPECT_EQ(result_.sequences[0].accepted, 3);
}

TEST_F(RowSamplerUnit, ALaterRowThatIsNoNumbersIsLeftToTheNextStep) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true});
  guess({"xy"});
  step(plan, {"x", "", "z"});
  EXPECT_EQ(result_.sequences[0].error, nullptr);
  EXPECT_EQ(tokens(0), "x");
  EXPECT_EQ(result_.sequences[0].accepted, 0);  // it is computed again, and fails then
}

TEST_F(RowSamplerUnit, ADeviceIsToldOfTheRowsThatAreIts) {
  engine::StepPlan plan;
  begin(plan, {.slot = 0, .tokens = {1}, .sample = true});
  begin(plan, {.slot = 1, .tokens = {1}, .sample = true}, "root ::= [ab]+");
  begin(plan, {.slot = 2, .tokens = {1}, .sample = true}).logit_bias = {{5, 1.0f}, {5, 1.0f}};
  slots_.apply(plan);
  grammars_.apply(plan);
  rows_ = sampler_.list(plan, build_batch(plan, slots_, drafts_, 0), drafts_, result_);
  sampling::DeviceRows device;
  sampler_.prepare_for_device(plan, rows_, device);
  EXPECT_EQ(rows_[0].source, SampledRow::Source::kDevice);
  EXPECT_EQ(rows_[2].source, SampledRow::Source::kLogits);  // a bias twice is the host's
}

// Its inputs are the tokens before it, and its slot is not being drawn for.
TEST_F(RowSamplerUnit, AFailedStepIsForgotten) {
  engine::StepPlan plan;
  plan.step = 5;
  begin(plan, {.slot = 1, .tokens = {1}, .sample = true});
  slots_.apply(plan);
  grammars_.apply(plan);
  slots_.append(1, 9, -1.0f);
  rows_ = sampler_.list(plan, build_batch(plan, slots_, drafts_, 0), drafts_, result_);
  EXPECT_EQ(slots_.input_token(1), ~0);
  sampler_.forget(plan, rows_);
  EXPECT_EQ(slots_.input_token(1), 9);
}

// No work is done at once: rows wait, and in the end the sequence gets what it would have got.
class RowSamplerBesideSteps : public RowSamplerUnit {
 protected:
  RowSamplerBesideSteps() : RowSamplerUnit(0) {}
};

TEST_F(RowSamplerBesideSteps, ADeferredRowGetsItsTokenLater) {
  engine::StepPlan plan;
  begin(plan, {.tokens = {1}, .sample = true}, "root ::= (\"cde\" | \"fgh\") [xy]");
  step(plan, {"afc"});
  int deferred = 0;
  for (; result_.sequences[0].deferral != nullptr; ++deferred) {
    EXPECT_EQ(tokens(0), "");
    while (!result_.sequences[0].deferral->is_over) std::this_thread::yield();
    engine::StepPlan again;
    add_row(again, {.tokens = {1}, .sample = true});
    step(again, {"afc"});
  }
  EXPECT_GE(deferred, 1);  // to advance over the token, at least
  EXPECT_EQ(tokens(0), "fg");
}

}  // namespace
}  // namespace pelton::executor
