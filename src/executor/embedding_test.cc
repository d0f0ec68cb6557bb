// An embedding is its prompt's own: bit for bit the same whatever runs beside it, in whatever
// chunks, whether it made room meanwhile or was found in the cache. And it is what its definition
// says: a mean over all prefixes' last states; the state that the head makes logits of.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "executor/local_executor.h"

namespace pelton::executor {
namespace {

using Tokens = std::vector<TokenId>;
using Vector = std::vector<float>;

// One loaded model's engine, put together anew for each way to run.
class EmbeddingFixture {
 public:
  EmbeddingFixture(const checkpoint::Checkpoint& checkpoint, LocalExecutor::Options executor,
                   engine::Engine::Options engine)
      : log_(clock_, {.level = base::LogLevel::kNone}) {
    engine.inbox_max = 1 << 16;
    auto made = LocalExecutor::create(checkpoint, executor);
    CHECK(made.ok(), made.ok() ? "" : made.error().message);
    executor_ = std::move(made).value();
    engine_ = std::make_unique<engine::Engine>(engine, *executor_, clock_, log_);
  }

  engine::TokenStream submit(request::GenerationRequest request) {
    auto stream = engine_->submit(std::move(request));
    CHECK(stream.ok(), stream.ok() ? "" : stream.error().message);
    return std::move(stream).value();
  }
  engine::Engine& engine() { return *engine_; }

 private:
  const base::SystemClock clock_{};
  base::Log log_;
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

engine::StreamEnd end_of(engine::TokenStream& stream, Tokens* tokens = nullptr) {
  for (;;) {
    engine::TokenStream::Batch batch = stream.wait();
    for (const engine::SampledToken& token : batch.tokens) {
      if (tokens != nullptr) tokens->push_back(token.token);
    }
    if (batch.end) return *std::move(batch.end);
  }
}

class Embedding : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* named = std::getenv("PELTON_ANSWERS_MODEL");
    const std::string tiny = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
    checkpoint_ = new checkpoint::Checkpoint(
        checkpoint::Checkpoint::open(named != nullptr ? named : tiny).value());
  }
  static void TearDownTestSuite() { delete checkpoint_; }

  // Short ones, long ones, and such that begin alike; each both ways.
  static std::vector<request::GenerationRequest> make_requests() {
    std::mt19937 random(7);
    const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
    const int vocabulary = std::min(checkpoint_->config().vocab_size, 4000);
    std::vector<Tokens> prompts;
    for (int i = 0; i < 60; ++i) {
      Tokens prompt;
      if (i > 0 && below(2) == 0) prompt = prompts[static_cast<size_t>(below(i))];
      const int more = below(8) == 0 ? 150 : 1 + below(25);
      for (int k = 0; k < more; ++k) prompt.push_back(below(vocabulary));
      if (prompt.size() > 400) prompt.resize(400);
      prompts.push_back(std::move(prompt));
    }
    std::vector<request::GenerationRequest> requests;
    for (const Tokens& prompt : prompts) {
      for (const request::Pooling pooling : {request::Pooling::kLast, request::Pooling::kMean}) {
        requests.push_back({.prompt = prompt, .pooling = pooling});
      }
    }
    return requests;
  }

  static LocalExecutor::Options usual() {
    LocalExecutor::Options options;
    options.threads = 1;
    options.sequences_max = 4;
    options.prefix_cache = false;
    options.context_tokens = 640;
    options.kv_bytes = int64_t{256} << 20;
    return options;
  }

  static LocalExecutor::Options short_of_blocks(LocalExecutor::Options options,
                                                int context_blocks) {
    LocalExecutor::Options uncached = options;
    uncached.prefix_cache = false;
    uncached.swap_bytes = 0;
    const auto ample =
        cost_model::footprint(*checkpoint_, *LocalExecutor::memory_request(uncached));
    CHECK(ample.ok(), ample.ok() ? "" : ample.error().message);
    options.kv_bytes =
        ample->kv.groups[0].spec.block_bytes * context_blocks + ample->kv.groups[1].bytes();
    return options;
  }

  static std::vector<Vector> all_at_once(EmbeddingFixture& fixture,
                                         const std::vector<request::GenerationRequest>& requests) {
    std::vector<engine::TokenStream> streams;
    for (const request::GenerationRequest& one : requests) streams.push_back(fixture.submit(one));
    std::vector<Vector> vectors;
    for (engine::TokenStream& stream : streams) {
      engine::StreamEnd end = end_of(stream);
      EXPECT_EQ(end.reason, engine::FinishReason::kEmbedded);
      vectors.push_back(std::move(end.embedding));
    }
    return vectors;
  }

  static std::vector<Vector> each_alone(const std::vector<request::GenerationRequest>& requests) {
    EmbeddingFixture fixture(*checkpoint_, usual(), {.prefix_cache = false});
    std::vector<Vector> vectors;
    for (const request::GenerationRequest& one : requests) {
      engine::TokenStream stream = fixture.submit(one);
      vectors.push_back(end_of(stream).embedding);
    }
    return vectors;
  }

  static checkpoint::Checkpoint* checkpoint_;
};

checkpoint::Checkpoint* Embedding::checkpoint_ = nullptr;

TEST_F(Embedding, IsTheSameAloneAndAmongOthers) {
  const std::vector<request::GenerationRequest> requests = make_requests();
  const std::vector<Vector> alone = each_alone(requests);
  ASSERT_EQ(alone[0].size(), static_cast<size_t>(checkpoint_->config().hidden_size));

  struct Way {
    const char* name;
    LocalExecutor::Options executor;
    engine::Engine::Options engine;
  };
  std::vector<Way> ways;
  ways.push_back({"batched", usual(), {.prefix_cache = false}});
  ways.push_back({"small chunks", usual(), {.prefix_cache = false}});
  ways.back().executor.batch_tokens_max = 7;
  ways.push_back({"several threads, found in the cache", usual(), {}});
  ways.back().executor.threads = 3;
  ways.back().executor.prefix_cache = true;
  ways.push_back({"preempted and swapped", short_of_blocks(usual(), 44), {}});
  ways.back().executor.prefix_cache = true;
  ways.back().executor.swap_bytes = int64_t{1} << 24;
  ways.back().engine.steps_in_flight_max = 1;
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    EmbeddingFixture fixture(*checkpoint_, way.executor, way.engine);
    const std::vector<Vector> together = all_at_once(fixture, requests);
    for (size_t i = 0; i < requests.size(); ++i) ASSERT_EQ(together[i], alone[i]) << i;
    if (way.engine.prefix_cache) {
      EXPECT_GT(fixture.engine().stats().prefix_tokens_found, 0);
    }
  }
}

TEST_F(Embedding, GoesWithAnswersInOneStep) {
  std::vector<request::GenerationRequest> requests = make_requests();
  requests.resize(40);
  const std::vector<Vector> alone = each_alone(requests);
  std::vector<request::GenerationRequest> talks;
  for (size_t i = 0; i < requests.size(); i += 5) {
    talks.push_back({.prompt = requests[i].prompt});
    talks.back().sampling.temperature = 0.0f;
    talks.back().stop.max_new_tokens = 12;
  }
  EmbeddingFixture fixture(*checkpoint_, usual(), {});
  std::vector<Tokens> quiet(talks.size());
  for (size_t i = 0; i < talks.size(); ++i) {
    engine::TokenStream stream = fixture.submit(talks[i]);
    end_of(stream, &quiet[i]);
  }
  std::vector<engine::TokenStream> talking;
  for (const request::GenerationRequest& talk : talks) talking.push_back(fixture.submit(talk));
  EXPECT_EQ(all_at_once(fixture, requests), alone);
  for (size_t i = 0; i < talks.size(); ++i) {
    Tokens tokens;
    end_of(talking[i], &tokens);
    EXPECT_EQ(tokens, quiet[i]);
  }
}

TEST_F(Embedding, AMeanIsThatOfItsPrefixesLastStates) {
  const Tokens prompt = {5, 17, 3, 3, 99, 42, 7, 1, 250, 12, 11};
  std::vector<request::GenerationRequest> requests;
  for (size_t length = 1; length <= prompt.size(); ++length) {
    requests.push_back({.prompt = Tokens(prompt.begin(), prompt.begin() + ptrdiff_t(length)),
                        .pooling = request::Pooling::kLast});
  }
  requests.push_back({.prompt = prompt, .pooling = request::Pooling::kMean});
  const std::vector<Vector> vectors = each_alone(requests);
  for (size_t i = 0; i < vectors.back().size(); ++i) {
    double sum = 0.0;
    for (size_t k = 0; k < prompt.size(); ++k) sum += static_cast<double>(vectors[k][i]);
    ASSERT_EQ(vectors.back()[i], static_cast<float>(sum / static_cast<double>(prompt.size())));
  }
}

// The largest product with a row of the head is what greedy sampling takes next.
TEST_F(Embedding, TheLastStateIsWhatLogitsAreMadeOf) {
  const families::ModelConfig& config = checkpoint_->config();
  const auto head =
      checkpoint_->tensor("lm_head.weight", tensor::DType::kBf16,
                          std::array<int64_t, 2>{config.vocab_size, config.hidden_size});
  ASSERT_TRUE(head.ok()) << head.error().message;
  EmbeddingFixture fixture(*checkpoint_, usual(), {});
  for (const Tokens& prompt : {Tokens{1, 2, 3}, Tokens{77, 5}, Tokens{9, 8, 7, 6, 5, 4, 3, 2, 1}}) {
    engine::TokenStream stream =
        fixture.submit({.prompt = prompt, .pooling = request::Pooling::kLast});
    const Vector state = end_of(stream).embedding;
    request::GenerationRequest talk{.prompt = prompt};
    talk.sampling.temperature = 0.0f;
    talk.stop.max_new_tokens = 1;
    Tokens next;
    engine::TokenStream talking = fixture.submit(talk);
    end_of(talking, &next);
    TokenId best = 0;
    double best_logit = -1e30;
    for (TokenId token = 0; token < config.vocab_size; ++token) {
      double logit = 0.0;
      for (int i = 0; i < config.hidden_size; ++i) {
        uint16_t half = 0;
        std::memcpy(&half, head->bytes.data() + (int64_t{token} * config.hidden_size + i) * 2, 2);
        const uint32_t bits = uint32_t{half} << 16;
        float weight = 0.0f;
        std::memcpy(&weight, &bits, 4);
        logit += static_cast<double>(weight) * static_cast<double>(state[size_t(i)]);
      }
      if (logit > best_logit) best = token;
      best_logit = std::max(best_logit, logit);
    }
    EXPECT_EQ(best, next.at(0));
  }
}

TEST_F(Embedding, BatchesArePackedByTokens) {
  std::vector<request::GenerationRequest> requests;
  for (int i = 0; i < 100; ++i) {
    requests.push_back({.prompt = {i, i + 1, i + 2}, .pooling = request::Pooling::kMean});
  }
  EmbeddingFixture fixture(*checkpoint_, usual(), {.prefix_cache = false});
  all_at_once(fixture, requests);
  // 300 tokens, 512 to a step, 4 slots of those that sample: the first few may come alone.
  EXPECT_LT(fixture.engine().stats().steps.count, 20);
}

}  // namespace
}  // namespace pelton::executor
