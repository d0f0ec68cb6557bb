// Every family through the engine: a request's answer is its own under each condition that the
// scheduler knows (same_answers_test.cc asks more of one model), and what the executor allocates is
// the estimate, to the byte (it CHECKs that itself). PELTON_SEED repeats the condition that is
// drawn for each family; PELTON_FULL=1 runs all of them.
#include <cstdlib>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "checkpoint/compact_weights.h"
#include "checkpoint/golden_cases.h"
#include "engine/engine.h"
#include "executor/local_executor.h"

namespace pelton::executor {
namespace {

using Tokens = std::vector<TokenId>;

struct Condition {
  const char* name;
  int sequences = 8;
  int threads = 1;
  int batch_tokens = 512;
  bool prefix_cache = false;
  int blocks_short = 0;  // full blocks in all, if there are too few
  int64_t swap_bytes = 0;
};

constexpr Condition kConditions[] = {
    {.name = "a batch", .sequences = 16},
    {.name = "two threads", .threads = 2},
    {.name = "token by token", .batch_tokens = 8},
    {.name = "chunks of 23", .batch_tokens = 23},
    {.name = "prefix cache", .prefix_cache = true},
    {.name = "preemption", .blocks_short = 16},
    {.name = "swap", .blocks_short = 16, .swap_bytes = int64_t{1} << 26},
};

std::vector<request::GenerationRequest> make_requests(int vocabulary) {
  std::mt19937 random(20261123);
  const auto below = [&](int bound) { return static_cast<int>(random() % unsigned(bound)); };
  std::vector<request::GenerationRequest> requests;
  for (int i = 0; i < 16; ++i) {
    request::GenerationRequest one;
    if (i > 0 && below(2) > 0) one.prompt = requests[static_cast<size_t>(below(i))].prompt;
    const int more = 1 + below(i % 4 == 0 ? 120 : 30);
    for (int k = 0; k < more; ++k) one.prompt.push_back(below(vocabulary));
    if (one.prompt.size() > 200) one.prompt.resize(200);
    one.stop.max_new_tokens = 8 + below(16);
    one.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    one.sampling.seed = random();
    requests.push_back(std::move(one));
  }
  return requests;
}

class Families : public testing::TestWithParam<checkpoint::GoldenFolder> {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "families_test_" + GetParam().name;
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(checkpoint::write_weights(GetParam(), folder_).ok());
    auto opened = checkpoint::Checkpoint::open(folder_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    checkpoint_.emplace(std::move(opened).value());
    requests_ = make_requests(checkpoint_->config().vocab_size);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  LocalExecutor::Options options_of(const Condition& condition) const {
    LocalExecutor::Options options{.threads = condition.threads,
                                   .sequences_max = condition.sequences,
                                   .batch_tokens_max = condition.batch_tokens,
                                   .prefix_cache = condition.prefix_cache,
                                   .context_tokens = 256,
                                   .kv_bytes = int64_t{1} << 28};
    if (condition.blocks_short == 0) return options;
    const auto ample = cost_model::footprint(*checkpoint_, *LocalExecutor::memory_request(options));
    CHECK(ample.ok(), ample.ok() ? "" : ample.error().message);
    int64_t bytes = 0;
    for (const auto& group : ample->kv.groups) {
      bytes +=
          group.spec.slides() ? group.bytes() : group.spec.block_bytes * condition.blocks_short;
    }
    options.kv_bytes = bytes;
    options.swap_bytes = condition.swap_bytes;
    return options;
  }

  // All at once, as many beside each other as the condition lets run.
  std::vector<Tokens> answers(const Condition& condition) {
    auto executor = LocalExecutor::create(*checkpoint_, options_of(condition));
    CHECK(executor.ok(), executor.ok() ? "" : executor.error().message);
    engine::Engine engine({.prefix_cache = condition.prefix_cache}, **executor, clock_, log_);
    std::vector<engine::TokenStream> streams;
    for (const request::GenerationRequest& request : requests_) {
      auto stream = engine.submit(request);
      CHECK(stream.ok(), stream.ok() ? "" : stream.error().message);
      streams.push_back(std::move(stream).value());
    }
    std::vector<Tokens> all;
    for (engine::TokenStream& stream : streams) all.push_back(tokens_of(stream));
    preemptions_ =
        engine.stats().scheduler.preemptions_recompute + engine.stats().scheduler.preemptions_swap;
    return all;
  }

  static Tokens tokens_of(engine::TokenStream& stream) {
    Tokens tokens;
    while (true) {
      const engine::TokenStream::Batch batch = stream.wait();
      for (const engine::SampledToken& token : batch.tokens) tokens.push_back(token.token);
      if (!batch.end) continue;
      EXPECT_FALSE(batch.end->error.has_value()) << batch.end->error->message;
      return tokens;
    }
  }

  std::string folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::vector<request::GenerationRequest> requests_;
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  int64_t preemptions_ = 0;
};

TEST_P(Families, AnAnswerDoesNotDependOnWhatRunsBesideIt) {
  const std::vector<Tokens> alone = answers({.name = "alone", .sequences = 1});
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  const size_t drawn = seed % std::size(kConditions);
  for (size_t i = 0; i < std::size(kConditions); ++i) {
    if (i != drawn && std::getenv("PELTON_FULL") == nullptr) continue;
    const Condition& condition = kConditions[i];
    std::printf("%s: %s, PELTON_SEED=%llu\n", GetParam().name.c_str(), condition.name,
                static_cast<unsigned long long>(seed));
    EXPECT_EQ(answers(condition), alone) << condition.name;
    const families::ModelConfig& config = checkpoint_->config();
    if (condition.blocks_short > 0 && config.count(families::AttentionKind::kSliding) == 0) {
      EXPECT_GT(preemptions_, 0) << condition.name;
    }
  }
}

// bf16 matrices in 12 bits: the same answers, in memory that is known before.
TEST_P(Families, TwelveBitsGiveTheSameAnswers) {
  const Condition condition{.name = "chunks of 23", .threads = 2, .batch_tokens = 23};
  const std::vector<Tokens> expected = answers(condition);
  const LocalExecutor::Options options = options_of(condition);
  cost_model::MemoryRequest request = *LocalExecutor::memory_request(options);
  request.compact_from = 0;
  const auto predicted = cost_model::footprint(*checkpoint_, request);
  ASSERT_TRUE(predicted.ok()) << predicted.error().message;
  base::ThreadPool pool({.threads = 2, .pin = false});
  const auto made =
      checkpoint::compact_weights(*checkpoint_, pool, [](int64_t, int64_t) { return true; });
  ASSERT_TRUE(made.ok()) << made.error().message;
  // Where no width is of whole blocks of 32, all stays as it is.
  const bool uneven = GetParam().name.find("uneven") != std::string::npos;
  EXPECT_EQ(made->tensors > 0, !uneven);
  request.compact_from.reset();
  const auto found = cost_model::footprint(*checkpoint_, request);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->weights.compact, made->bytes);
  if (made->left == 0 && request.kernels == cost_model::KernelKind::kCpu) {
    EXPECT_EQ(cost_model::to_json(*found), cost_model::to_json(*predicted));
  }
  EXPECT_EQ(answers(condition), expected);  // the executor CHECKs what it allocates
}

std::vector<checkpoint::GoldenFolder> gpt_oss() {
  auto found = checkpoint::golden_folders(PELTON_SOURCE_DIR "/testdata/golden");
  std::erase_if(found,
                [](const checkpoint::GoldenFolder& golden) { return golden.name != "tiny"; });
  return found;
}
INSTANTIATE_TEST_SUITE_P(GptOss, Families, testing::ValuesIn(gpt_oss()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::ValuesIn(checkpoint::family_folders(PELTON_SOURCE_DIR
                                                                      "/testdata/golden")),
                         [](const auto& info) { return info.param.test_name(); });

}  // namespace
}  // namespace pelton::executor
