// The engine on a real model: testdata/golden/tiny, whose exact greedy continuation is known.
#include "executor/local_executor.h"

#include <random>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "executor/test_guide.h"

namespace pelton::executor {
namespace {

struct Golden {
  std::vector<TokenId> prompt;
  std::vector<TokenId> continuation;
};

Golden read_golden() {
  const Json json = *Json::parse(
      *base::read_file(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny/tokens.json"));
  Golden golden;
  for (const Json& token : json.find("prompt")->as_array()) {
    golden.prompt.push_back(static_cast<TokenId>(token.as_integer()));
  }
  for (const Json& token : json.find("continuation")->as_array()) {
    golden.continuation.push_back(static_cast<TokenId>(token.as_integer()));
  }
  return golden;
}

class EngineOnTiny : public ::testing::Test {
 protected:
  void start(LocalExecutor::Options options, const engine::Engine::Options& engine = {}) {
    options.threads = 2;
    auto made = LocalExecutor::create(checkpoint_, options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    executor_ = std::move(made).value();
    engine_ = std::make_unique<engine::Engine>(engine, *executor_, clock_, log_);
  }

  // So many full blocks, and no window blocks but what may run.
  void give_context_blocks(LocalExecutor::Options& options, int context_blocks) {
    options.prefix_cache = false;
    options.kv_bytes = int64_t{1} << 30;
    const auto ample = cost_model::footprint(checkpoint_, *LocalExecutor::memory_request(options));
    ASSERT_TRUE(ample.ok());
    options.kv_bytes =
        ample->kv.groups[0].spec.block_bytes * context_blocks + ample->kv.groups[1].bytes();
  }

  engine::TokenStream submit(std::vector<TokenId> prompt, int max_new,
                             const request::SamplingParams& sampling) {
    auto stream = engine_->submit({.id = "test",
                                   .prompt = std::move(prompt),
                                   .sampling = sampling,
                                   .stop = {.max_new_tokens = max_new}});
    CHECK(stream.ok(), stream.ok() ? "" : stream.error().message);
    return std::move(stream).value();
  }

  static std::vector<TokenId> tokens_of(engine::TokenStream& stream) {
    std::vector<TokenId> out;
    while (true) {
      engine::TokenStream::Batch batch = stream.wait();
      for (const engine::SampledToken& token : batch.tokens) out.push_back(token.token);
      if (!batch.end) continue;
      EXPECT_FALSE(batch.end->error.has_value());
      return out;
    }
  }

  const checkpoint::Checkpoint checkpoint_ = std::move(
      checkpoint::Checkpoint::open(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny")
          .value());
  const Golden golden_ = read_golden();
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(EngineOnTiny, ReferenceKernelsReproduceTheGoldenContinuation) {
  start({.kernels = "reference"});
  auto stream =
      submit(golden_.prompt, static_cast<int>(golden_.continuation.size()), {.temperature = 0});
  EXPECT_EQ(tokens_of(stream), golden_.continuation);
}

TEST_F(EngineOnTiny, ChunkedPrefillChangesNothing) {
  start({.batch_tokens_max = 7});
  auto stream =
      submit(golden_.prompt, static_cast<int>(golden_.continuation.size()), {.temperature = 0});
  EXPECT_EQ(tokens_of(stream), golden_.continuation);
}

// One that guesses this token, as often as it may.
class Stubborn final : public speculative::Proposer {
 public:
  explicit Stubborn(TokenId guess) : guess_(guess) {}
  std::string_view name() const override { return "stubborn"; }
  void begin(const speculative::NewSequence&) override {}
  void append(int, std::span<const TokenId>, size_t) override {}
  Result<void> draft(std::span<speculative::DraftRequest> requests) override {
    for (speculative::DraftRequest& request : requests) {
      request.guesses.assign(static_cast<size_t>(request.tokens_max), guess_);
    }
    return {};
  }
  int64_t bytes() const override { return 0; }

 private:
  const TokenId guess_;
};

// Of a guess that a grammar does not allow no row is computed, nor of what stands behind it.
TEST_F(EngineOnTiny, GuessesThatAGrammarDoesNotAllowAreNotComputed) {
  const auto guesses_computed = [this](TokenId guess) {
    engine_.reset();
    LocalExecutor::Options options{.kernels = "reference",
                                   .proposer = std::make_shared<Stubborn>(guess)};
    options.speculation.method = speculative::Config::Method::kOracle;
    options.speculation.tokens_max = 3;
    start(options);
    auto stream =
        engine_->submit({.id = "test",
                         .prompt = golden_.prompt,
                         .sampling = {.temperature = 0},
                         .stop = {.max_new_tokens = 24},
                         .guide = guide_of("root ::= [a-c]+", checkpoint_.config().vocab_size)});
    EXPECT_EQ(tokens_of(*stream).size(), 24u);
    return engine_->stats().scheduler.draft_tokens;
  };
  EXPECT_GT(guesses_computed('b'), 0);
  EXPECT_EQ(guesses_computed('z'), 0);
}

// Each request's tokens are those it gets alone, whatever runs beside it; also when the cache is so
// small that sequences are preempted and computed again.
TEST_F(EngineOnTiny, ABatchedRequestGetsWhatItGetsAlone) {
  std::mt19937 random(7);
  struct Asked {
    std::vector<TokenId> prompt;
    int max_new;
    request::SamplingParams sampling;
    std::vector<TokenId> alone;
  };
  std::vector<Asked> asked;
  start({.sequences_max = 1});
  for (int i = 0; i < 12; ++i) {
    Asked one;
    for (unsigned n = 1 + random() % 70; n > 0; --n) {
      one.prompt.push_back(static_cast<TokenId>(random() % 500));
    }
    one.max_new = 1 + static_cast<int>(random() % 60);
    one.sampling.temperature = i % 3 == 0 ? 0.0f : 1.0f;
    one.sampling.top_p = i % 4 == 1 ? 0.8f : 1.0f;
    one.sampling.frequency_penalty = i % 5 == 2 ? 0.7f : 0.0f;
    one.sampling.repetition_penalty = i % 5 == 3 ? 1.3f : 1.0f;
    one.sampling.seed = random();
    auto stream = submit(one.prompt, one.max_new, one.sampling);
    one.alone = tokens_of(stream);
    EXPECT_EQ(static_cast<int>(one.alone.size()), one.max_new);
    asked.push_back(std::move(one));
  }
  engine_.reset();

  for (const int context_blocks : {1000, 12}) {
    LocalExecutor::Options options{
        .sequences_max = 6, .batch_tokens_max = 33, .context_tokens = 160};
    give_context_blocks(options, context_blocks);
    start(options);
    std::vector<engine::TokenStream> streams;
    for (const Asked& one : asked) streams.push_back(submit(one.prompt, one.max_new, one.sampling));
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(tokens_of(streams[i]), asked[i].alone) << "request " << i;
    }
    if (context_blocks == 12) {
      EXPECT_GT(engine_->stats().preemptions, 0);
    }
    EXPECT_EQ(engine_->stats().blocks_used, (kv::PerGroup<int>{0, 0}));
    engine_.reset();
  }
}

// What was computed for others is as good as computed anew, to the last bit: the same tokens with
// the cache, without, and when most of it had to make room.
TEST_F(EngineOnTiny, TheCacheChangesNoToken) {
  std::mt19937 random(11);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 16; ++i) {
    std::vector<TokenId> prompt;
    if (i > 0) prompt = prompts[random() % static_cast<unsigned>(i)];
    if (i > 0) prompt.resize(random() % (prompt.size() + 1));
    const unsigned length = static_cast<unsigned>(prompt.size()) + 1 + random() % 80;
    while (prompt.size() < std::min(length, 200u)) {
      prompt.push_back(static_cast<TokenId>(random() % 500));
    }
    prompts.push_back(std::move(prompt));
  }
  const auto answers = [&](bool cache, int context_blocks, int64_t* found) {
    LocalExecutor::Options options{
        .sequences_max = 3, .batch_tokens_max = 50, .context_tokens = 256};
    give_context_blocks(options, context_blocks);
    start(options, {.prefix_cache = cache});
    std::vector<std::vector<TokenId>> tokens;
    std::vector<engine::TokenStream> streams;
    for (size_t i = 0; i < prompts.size(); ++i) {
      streams.push_back(
          submit(prompts[i], 30, {.temperature = i % 3 == 2 ? 1.0f : 0.0f, .seed = i}));
      if (i % 4 == 0) tokens.push_back(tokens_of(streams[tokens.size()]));
    }
    while (tokens.size() < streams.size()) tokens.push_back(tokens_of(streams[tokens.size()]));
    *found = engine_->stats().prefix_tokens_found;
    engine_.reset();
    return tokens;
  };
  int64_t found = 0;
  const std::vector<std::vector<TokenId>> without = answers(false, 1000, &found);
  EXPECT_EQ(found, 0);
  EXPECT_EQ(answers(true, 1000, &found), without);
  EXPECT_GT(found, 200);  // there are window blocks for little more than those that run
  EXPECT_EQ(answers(true, 18, &found), without);
}

TEST_F(EngineOnTiny, RowsWithoutATokenAreNeverSampled) {
  start({.sampled_vocab = 40});
  auto stream = submit(golden_.prompt, 50, {.seed = 9});
  for (const TokenId token : tokens_of(stream)) EXPECT_LT(token, 40);
}

TEST_F(EngineOnTiny, ATokenOutsideTheVocabularyIsRefused) {
  start({});
  const auto stream = engine_->submit({.id = "test", .prompt = {1, 512, 3}});
  ASSERT_FALSE(stream.ok());
  EXPECT_EQ(stream.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(stream.error().message.find("512"), std::string::npos) << stream.error().message;
}

TEST_F(EngineOnTiny, ABudgetTooSmallIsRefusedWithNumbers) {
  const auto made =
      LocalExecutor::create(checkpoint_, {.context_tokens = 4096, .kv_bytes = 100'000});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(made.error().message.find("4096 tokens"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace pelton::executor
