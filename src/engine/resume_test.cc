// Answers that began elsewhere: whatever of an answer an engine is given back, it goes on with
// exactly what the undisturbed run said, and ends where and why that one ended.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/engine.h"
#include "engine/modelled_executor.h"
#include "grammar/ebnf.h"

namespace pelton::engine {
namespace {

constexpr TokenId kEnd = 300;
constexpr int kVocabulary = 301;

struct Answer {
  std::vector<TokenId> tokens;
  StreamEnd end;
};

class Resume : public testing::Test {
 protected:
  Resume() {
    ModelledExecutor::Options options;
    options.capacity = {
        .block_tokens = 4,
        .groups = {{{.name = "full"}, {60, 6}}, {{.name = "window", .sliding_window = 8}, {60, 6}}},
        .sequences_max = 4,
        .batch_tokens_max = 16,
        .context_tokens_max = 256,
        .vocab_size = kVocabulary};
    options.next_token = checksum_tokens(kVocabulary);
    options.jump_tokens_max = 3;
    executor_ = std::make_unique<ModelledExecutor>(std::move(options));
    // One step at a time: what a thinking budget forces stands at the same place in each run.
    engine_ = std::make_unique<Engine>(
        Engine::Options{.steps_in_flight_max = 1, .hash_seed = 7, .checks_every_step = true},
        *executor_, clock_, log_);
  }

  std::vector<Answer> run(const request::GenerationRequest& request, int count) {
    Result<std::vector<TokenStream>> streams = engine_->submit_answers(request, count);
    EXPECT_TRUE(streams.ok()) << (streams.ok() ? "" : streams.error().message);
    std::vector<Answer> answers;
    if (!streams.ok()) return answers;
    for (TokenStream& stream : *streams) {
      Answer& answer = answers.emplace_back();
      for (;;) {
        const TokenStream::Batch batch = stream.wait();
        for (const SampledToken& token : batch.tokens) answer.tokens.push_back(token.token);
        if (!batch.end) continue;
        answer.end = *batch.end;
        break;
      }
    }
    return answers;
  }

  // From every token on. A new salt each time: nothing of the run before is found.
  void check_every_cut(request::GenerationRequest request) {
    const Answer whole = run(request, 1).at(0);
    for (size_t cut = 0; cut <= whole.tokens.size(); ++cut) {
      const auto middle = whole.tokens.begin() + static_cast<std::ptrdiff_t>(cut);
      request.cache_salt = cut % 2 == 0 ? "" : std::to_string(cut);
      request.resumed = {{.index = 0, .tokens = {whole.tokens.begin(), middle}}};
      const Answer rest = run(request, 1).at(0);
      EXPECT_EQ(rest.tokens, std::vector<TokenId>(middle, whole.tokens.end())) << "cut " << cut;
      EXPECT_EQ(rest.end.reason, whole.end.reason) << "cut " << cut;
      EXPECT_EQ(rest.end.output_tokens, whole.end.output_tokens);
      EXPECT_EQ(rest.end.prompt_tokens, whole.end.prompt_tokens);
      EXPECT_LE(rest.end.cached_tokens, rest.end.prompt_tokens);
    }
  }

  static request::GenerationRequest request_of(uint64_t seed) {
    request::GenerationRequest request;
    for (uint64_t i = 0; i < 3 + seed % 20; ++i) {
      request.prompt.push_back(static_cast<TokenId>(base::random_bits(seed, i) % 256));
    }
    request.stop.max_new_tokens = 30;
    request.sampling.seed = seed;
    return request;
  }

  const base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::unique_ptr<ModelledExecutor> executor_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Resume, GoesOnFromAnyToken) {
  for (uint64_t seed = 1; seed <= 8; ++seed) check_every_cut(request_of(seed));
}

TEST_F(Resume, EndsAtAStopTokenAndNotBeforeTheMinimum) {
  int stopped = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    request::GenerationRequest request = request_of(seed);
    for (TokenId token = 0; token < 30; ++token) request.stop.stop_tokens.push_back(token);
    request.stop.min_new_tokens = static_cast<int>(seed % 3) * 4;
    if (run(request, 1).at(0).end.reason == FinishReason::kStop) ++stopped;
    check_every_cut(request);
  }
  EXPECT_GE(stopped, 4);
}

TEST_F(Resume, RemembersPenaltiesAndRepetition) {
  request::GenerationRequest request = request_of(3);
  request.sampling.repetition_penalty = 1.2f;
  request.sampling.frequency_penalty = 0.5f;
  check_every_cut(request);
  // All tokens but one are suppressed after the first: it repeats itself.
  request.sampling = {.seed = 4};
  request.stop.repetition = {.pattern_min = 1, .pattern_max = 2, .count = 3};
  request.guide = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const auto trie = std::make_shared<const grammar::TokenTrie>(views);
    const auto rules = grammar::TokenGrammar::make(
                           grammar::compile_ebnf("root ::= [0-9]{4} \"ab\"{20}").value(), trie)
                           .value();
    grammar::GrammarFsm::Parts parts{.trie = trie, .vocab_size = kVocabulary};
    parts.segments.push_back({grammar::GrammarFsm::Segment::Text::kGrammar, rules, {{kEnd, {}}}});
    parts.starts = {0};
    return grammar::GrammarState(std::make_shared<const grammar::GrammarFsm>(std::move(parts)));
  }();
  EXPECT_EQ(run(request, 1).at(0).end.reason, FinishReason::kRepetition);
  check_every_cut(request);
}

TEST_F(Resume, CountsTheThinkingBudget) {
  int forced = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    request::GenerationRequest request = request_of(seed);
    request::ThinkingBudget budget{.tokens_max = 5, .then = {290, 291}, .then_at_once = {292}};
    // Reasoning begins with what happens to be sampled fourth, and again at its next occurrence.
    budget.begins = {run(request, 1).at(0).tokens.at(3)};
    budget.ends = {290, 292};
    request.quota = budget;
    const std::vector<TokenId> tokens = run(request, 1).at(0).tokens;
    if (std::count(tokens.begin(), tokens.end(), 290) > 0) ++forced;
    check_every_cut(request);
  }
  EXPECT_GE(forced, 8);
}

TEST_F(Resume, EachOfSeveralAnswersFromItsOwnToken) {
  request::GenerationRequest request = request_of(17);
  const std::vector<Answer> whole = run(request, 4);
  // The second has ended and is not asked for again.
  request.resumed = {{.index = 0, .tokens = {}},
                     {.index = 2, .tokens = {whole[2].tokens.begin(), whole[2].tokens.begin() + 9}},
                     {.index = 3, .tokens = whole[3].tokens}};
  const std::vector<Answer> rest = run(request, 3);
  EXPECT_EQ(rest[0].tokens, whole[0].tokens);
  EXPECT_EQ(rest[1].tokens,
            std::vector<TokenId>(whole[2].tokens.begin() + 9, whole[2].tokens.end()));
  EXPECT_TRUE(rest[2].tokens.empty());
  EXPECT_EQ(rest[2].end.reason, FinishReason::kLength);
}

TEST_F(Resume, RefusesWhatNoAnswerCanBe) {
  request::GenerationRequest request = request_of(1);
  request.resumed = {{.index = 0, .tokens = std::vector<TokenId>(31, 1)}};
  EXPECT_EQ(engine_->submit(request).error().field, "resumed");
  request.resumed = {{.index = 0, .tokens = {kVocabulary}}};
  EXPECT_EQ(engine_->submit(request).error().field, "resumed");
  request.resumed = {{.index = -1, .tokens = {}}};
  EXPECT_EQ(engine_->submit(request).error().field, "resumed");
  request.resumed = {{.index = 0, .tokens = {}}};
  request.pooling = request::Pooling::kLast;
  EXPECT_FALSE(engine_->submit(request).ok());
}

}  // namespace
}  // namespace pelton::engine
