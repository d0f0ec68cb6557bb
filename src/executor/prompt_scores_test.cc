// What a model says of a prompt's tokens: the same in whatever chunks the prompt is computed,
// beside whatever else, found in the cache or not, and the same as it said when it had written
// them.
#include "executor/prompt_scores.h"

#include <cmath>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "executor/batch_builder.h"
#include "executor/fake_step_model.h"
#include "executor/local_executor.h"
#include "executor/test_plan.h"

namespace pelton::executor {
namespace {

using Tokens = std::vector<TokenId>;
using Scores = std::vector<engine::PromptToken>;

struct Said {
  Scores prompt;
  std::vector<engine::SampledToken> output;
  int cached = 0;
};

class PromptScores : public ::testing::Test {
 protected:
  void start(LocalExecutor::Options options) {
    engine_.reset();
    options.threads = 2;
    auto made = LocalExecutor::create(checkpoint_, options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    executor_ = std::move(made).value();
    engine_ = std::make_unique<engine::Engine>(engine::Engine::Options{}, *executor_, clock_, log_);
  }

  static request::GenerationRequest asking(Tokens prompt, int max_new, int top) {
    request::GenerationRequest request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = max_new;
    request.sampling.seed = 11;
    request.sampling.logprobs = 2;
    request.sampling.prompt_logprobs = top;
    return request;
  }

  static Said read(engine::TokenStream& stream) {
    Said said;
    for (;;) {
      engine::TokenStream::Batch batch = stream.wait();
      if (!batch.prompt.empty()) {
        EXPECT_TRUE(said.output.empty() && said.prompt.empty()) << "with the first token, once";
        said.prompt = std::move(batch.prompt);
      }
      for (engine::SampledToken& token : batch.tokens) said.output.push_back(std::move(token));
      if (!batch.end) continue;
      EXPECT_FALSE(batch.end->error.has_value());
      said.cached = batch.end->cached_tokens;
      return said;
    }
  }

  Said ask(Tokens prompt, int max_new, int top) {
    auto stream = engine_->submit(asking(std::move(prompt), max_new, top));
    CHECK(stream.ok());
    return read(stream.value());
  }

  static Tokens random_tokens(unsigned seed, size_t count) {
    std::mt19937 random(seed);
    Tokens tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % 500));
    return tokens;
  }

  const checkpoint::Checkpoint checkpoint_ = std::move(
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value());
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

void expect_same(const Scores& some, const Scores& others) {
  ASSERT_EQ(some.size(), others.size());
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].scored.token, others[i].scored.token) << i;
    EXPECT_EQ(some[i].scored.logprob, others[i].scored.logprob) << i;
    EXPECT_EQ(some[i].rank, others[i].rank) << i;
    EXPECT_EQ(some[i].scored.top, others[i].scored.top) << i;
  }
}

TEST_F(PromptScores, ranks_alternatives_and_values_agree) {
  const Tokens prompt = random_tokens(1, 90);
  start({});
  const Said said = ask(prompt, 1, 20);
  ASSERT_EQ(said.prompt.size(), prompt.size() - 1);
  for (size_t i = 0; i < said.prompt.size(); ++i) {
    const engine::PromptToken& one = said.prompt[i];
    EXPECT_EQ(one.scored.token, prompt[i + 1]);
    EXPECT_TRUE(std::isfinite(one.scored.logprob) && one.scored.logprob <= 0.0f);
    ASSERT_EQ(one.scored.top.size(), 20u);
    EXPECT_GE(one.rank, 1);
    if (one.rank <= 20) {
      EXPECT_EQ(one.scored.top[static_cast<size_t>(one.rank) - 1],
                std::pair(one.scored.token, one.scored.logprob));
    } else {
      EXPECT_LE(one.scored.logprob, one.scored.top.back().second);
    }
  }
}

// Some 6 rows of logits at a time, chunks of 7 tokens, the whole prompt at once.
TEST_F(PromptScores, chunks_and_rows_at_a_time_change_nothing) {
  const Tokens prompt = random_tokens(2, 130);
  start({.sequences_max = 16, .batch_tokens_max = 512});
  const Said whole = ask(prompt, 3, 3);
  start({.sequences_max = 2, .batch_tokens_max = 7});
  const Said chunked = ask(prompt, 3, 3);
  expect_same(whole.prompt, chunked.prompt);
  start({.kernels = "reference", .sequences_max = 1, .batch_tokens_max = 512});
  expect_same(ask(prompt, 3, 3).prompt, [&] {
    start({.kernels = "reference", .sequences_max = 3, .batch_tokens_max = 31});
    return ask(prompt, 3, 3).prompt;
  }());
}

TEST_F(PromptScores, a_prompt_that_is_in_the_cache_is_computed_for_its_scores_only) {
  const Tokens prompt = random_tokens(3, 100);
  start({});
  const Said first = ask(prompt, 2, 1);
  EXPECT_EQ(first.cached, 0);
  const Said scored_again = ask(prompt, 2, 1);
  EXPECT_EQ(scored_again.cached, 0) << "every token's state is needed";
  expect_same(first.prompt, scored_again.prompt);
  const Said unscored = ask(prompt, 2, -1);
  EXPECT_EQ(unscored.cached, 96) << "what was computed for scores is found by others";
  EXPECT_TRUE(unscored.prompt.empty());
}

TEST_F(PromptScores, what_was_written_and_fed_back_has_the_scores_it_was_written_with) {
  const Tokens prompt = random_tokens(4, 40);
  start({.batch_tokens_max = 33});
  const Said written = ask(prompt, 60, -1);
  Tokens all = prompt;
  for (const engine::SampledToken& token : written.output) all.push_back(token.token);
  const Said again = ask(all, 1, 2);
  ASSERT_EQ(again.prompt.size(), all.size() - 1);
  for (size_t i = 0; i < written.output.size(); ++i) {
    const engine::SampledToken& one = again.prompt[prompt.size() - 1 + i].scored;
    EXPECT_EQ(one.token, written.output[i].token);
    EXPECT_EQ(one.logprob, written.output[i].logprob) << i;
    EXPECT_EQ(one.top, written.output[i].top) << i;
  }
}

TEST_F(PromptScores, of_several_answers_the_first_tells_them_and_others_are_not_disturbed) {
  const Tokens prompt = random_tokens(5, 70);
  start({.sequences_max = 4, .batch_tokens_max = 24});
  const Said alone = ask(prompt, 8, 2);
  auto streams = engine_->submit_answers(asking(prompt, 8, 2), 3);
  auto beside = engine_->submit(asking(random_tokens(6, 50), 20, -1));
  ASSERT_TRUE(streams.ok() && beside.ok());
  for (size_t i = 0; i < streams->size(); ++i) {
    const Said one = read((*streams)[i]);
    if (i == 0) {
      expect_same(one.prompt, alone.prompt);
    } else {
      EXPECT_TRUE(one.prompt.empty());
    }
  }
  EXPECT_EQ(read(beside.value()).output.size(), 20u);
  const Said single = ask({7}, 1, 2);
  EXPECT_TRUE(single.prompt.empty()) << "nothing foretells the first token";
}

// Of one step, whose rows of logits are made up: token r is the likeliest of row r, by 1.
class ScorePrompts : public ::testing::Test {
 protected:
  static constexpr int kVocab = 8;

  ScorePrompts() {
    model_.logits = [](int row) {
      std::vector<float> logits(kVocab, 0.0f);
      logits[static_cast<size_t>(row) % kVocab] = 1.0f;
      return logits;
    };
    for (sampling::Sampler& sampler : samplers_) sampler.reserve(kVocab);
  }

  void score(const engine::StepPlan& plan, int sampled_vocab = kVocab) {
    slots_.apply(plan);
    result_.sequences.resize(plan.sequences.size());
    result_.tokens.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      result_.sequences[i].tokens = {static_cast<int32_t>(i), 1};
    }
    const std::vector<int> first = first_rows(plan, {});
    score_prompts(plan,
                  {.slots = slots_,
                   .model = model_,
                   .pool = pool_,
                   .samplers = samplers_,
                   .first_rows = first,
                   .vocab_size = kVocab,
                   .sampled_vocab = sampled_vocab},
                  result_);
  }

  std::vector<int> ranks(size_t sequence) const {
    std::vector<int> ranks;
    for (const auto& scored : result_.sequences[sequence].scored.of(result_.prompt_tokens)) {
      ranks.push_back(scored.rank);
    }
    return ranks;
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::vector<sampling::Sampler> samplers_{2};
  SlotTable slots_{3};
  FakeStepModel model_;
  engine::StepResult result_;
};

TEST_F(ScorePrompts, EachTargetIsScoredByTheRowBeforeIt) {
  engine::StepPlan plan;
  add_row(plan, {.slot = 0, .tokens = {7, 7}});                        // rows 0 and 1: nobody asks
  add_row(plan, {.slot = 1, .tokens = {5, 2, 4}, .targets = {2, 4}});  // rows 2, 3, 4
  arrive(plan).sampling.prompt_logprobs = 1;
  add_row(plan, {.slot = 2, .tokens = {6, 6}, .targets = {5, 0}});  // rows 5, 6; one comes later
  score(plan);
  EXPECT_EQ(ranks(0), (std::vector<int>{}));
  EXPECT_EQ(ranks(1), (std::vector<int>{1, 5}));  // behind 3, and 0 1 2 of its equals
  EXPECT_EQ(ranks(2), (std::vector<int>{1, 2}));
  const auto scored = result_.sequences[1].scored.of(result_.prompt_tokens);
  const float likeliest = 1.0f - std::log(7.0f + std::exp(1.0f));
  EXPECT_EQ(scored[1].scored.token, 4);
  EXPECT_NEAR(scored[0].scored.logprob, likeliest, 1e-6);
  EXPECT_NEAR(scored[1].scored.logprob, likeliest - 1.0f, 1e-6);
  ASSERT_EQ(scored[1].scored.top.size(), 1u);
  EXPECT_EQ(scored[1].scored.top[0].first, 3);
}

TEST_F(ScorePrompts, TokensBeyondTheVocabularyDoNotCount) {
  model_.logits = [](int) { return std::vector<float>{0, 0, 0, 0, 9, 9, 9, 9}; };
  engine::StepPlan plan;
  add_row(plan, {.tokens = {1, 1}, .targets = {2}});
  score(plan, 4);
  EXPECT_EQ(ranks(0), (std::vector<int>{3}));
}

TEST_F(ScorePrompts, ARowThatIsNoNumbersFailsItsSequenceAlone) {
  model_.logits = [](int row) {
    return std::vector<float>(kVocab, row == 3 ? std::nanf("") : 0.0f);
  };
  engine::StepPlan plan;
  add_row(plan, {.slot = 0, .tokens = {1, 1}, .targets = {1}});
  add_row(plan, {.slot = 1, .tokens = {1, 1, 1}, .targets = {1, 1}});
  score(plan);
  EXPECT_EQ(result_.sequences[0].error, nullptr);
  EXPECT_EQ(result_.sequences[0].tokens.count, 1);
  ASSERT_NE(result_.sequences[1].error, nullptr);
  EXPECT_EQ(result_.sequences[1].tokens.count, 0);
}

TEST_F(ScorePrompts, AModelThatCannotFailsOnlyWhoAsks) {
  model_.error = Error{ErrorCode::kUnsupported, "not on this device", ""};
  engine::StepPlan plan;
  add_row(plan, {.slot = 0, .tokens = {1, 1}});
  add_row(plan, {.slot = 1, .tokens = {1, 1}, .targets = {1}});
  score(plan);
  EXPECT_EQ(result_.sequences[0].error, nullptr);
  ASSERT_NE(result_.sequences[1].error, nullptr);
  EXPECT_EQ(result_.sequences[1].error->code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pelton::executor
