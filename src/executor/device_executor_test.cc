// The executor on a device library (the emulated one, or what PELTON_DEVICE_LIBRARY names) under
// the real engine: an answer is the same alone, beside others, in small chunks, found in the cache,
// and swapped out and back; an embedding is the CPU's; what a device cannot do is an error at
// start.
#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "executor/local_executor.h"
#include "executor/test_guide.h"
#include "speculative/oracle.h"

namespace pelton::executor {
namespace {

using Tokens = std::vector<TokenId>;

std::string folder_named(const char* variable, const char* otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? given : otherwise;
}

Device test_device() {
  const std::string path =
      folder_named("PELTON_DEVICE_LIBRARY",
                   (std::string(PELTON_BINARY_DIR) + "/libpelton_cuda_emulated.so").c_str());
  auto library = cuda::DeviceLibrary::open(path);
  CHECK(library.ok(), library.ok() ? "" : library.error().message);
  const auto info = library->device(0);
  CHECK(info.ok());
  return {.library = *library, .index = 0, .info = *info};
}

struct Asked {
  Tokens prompt;
  int max_new = 0;
  request::SamplingParams sampling;
  std::optional<grammar::GrammarState> guide;
};

class DeviceExecutorTest : public ::testing::Test {
 protected:
  void start(const LocalExecutor::Options& options, engine::Engine::Options engine) {
    engine.overlapped_step_ns_max = INT64_MAX;  // an emulated step takes long
    engine_.reset();
    auto made = LocalExecutor::create(checkpoint_, options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    executor_ = std::move(made).value();
    engine_ = std::make_unique<engine::Engine>(engine, *executor_, clock_, log_);
  }

  LocalExecutor::Options usual() const {
    LocalExecutor::Options options;
    options.threads = 1;
    options.sequences_max = 4;
    options.batch_tokens_max = 64;
    options.prefix_cache = false;
    options.context_tokens = 96;
    options.kv_bytes = int64_t{1} << 20;
    options.device = device_;
    return options;
  }

  std::vector<Tokens> all_at_once(const std::vector<Asked>& asked) {
    std::vector<Tokens> answers;
    for (const std::vector<engine::SampledToken>& said : said_at_once(asked)) {
      answers.emplace_back();
      for (const engine::SampledToken& token : said) answers.back().push_back(token.token);
    }
    return answers;
  }

  std::vector<std::vector<engine::SampledToken>> said_at_once(const std::vector<Asked>& asked) {
    std::vector<engine::TokenStream> streams;
    for (const Asked& one : asked) {
      auto stream = engine_->submit({.id = "test",
                                     .prompt = one.prompt,
                                     .sampling = one.sampling,
                                     .stop = {.max_new_tokens = one.max_new},
                                     .guide = one.guide});
      CHECK(stream.ok(), stream.ok() ? "" : stream.error().message);
      streams.push_back(std::move(*stream));
    }
    std::vector<std::vector<engine::SampledToken>> answers;
    for (engine::TokenStream& stream : streams) {
      std::vector<engine::SampledToken> tokens;
      while (true) {
        engine::TokenStream::Batch batch = stream.wait();
        for (engine::SampledToken& token : batch.tokens) tokens.push_back(std::move(token));
        if (!batch.end) continue;
        EXPECT_FALSE(batch.end->error.has_value());
        break;
      }
      answers.push_back(std::move(tokens));
    }
    return answers;
  }

  const checkpoint::Checkpoint checkpoint_ =
      std::move(checkpoint::Checkpoint::open(folder_named("PELTON_TEST_SOURCE", PELTON_SOURCE_DIR) +
                                             "/testdata/golden/tiny")
                    .value());
  const Device device_ = test_device();
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

// Whatever type keys and values are kept in.
class DeviceExecutorKvTest : public DeviceExecutorTest,
                             public ::testing::WithParamInterface<tensor::DType> {
 protected:
  LocalExecutor::Options usual() const {
    LocalExecutor::Options options = DeviceExecutorTest::usual();
    options.kv_dtype = GetParam();
    return options;
  }
};

std::vector<Asked> random_questions(int count) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::vector<Asked> asked;
  for (int i = 0; i < count; ++i) {
    Asked one;
    for (unsigned n = 1 + random() % 40; n > 0; --n) {
      one.prompt.push_back(static_cast<TokenId>(random() % 500));
    }
    one.max_new = 4 + static_cast<int>(random() % 12);
    one.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    one.sampling.seed = random();
    if (random() % 2 == 0) {  // what was just drawn changes what is drawn next
      one.sampling.repetition_penalty = 1.3f;
      one.sampling.frequency_penalty = 0.7f;
      one.sampling.presence_penalty = 0.4f;
    }
    asked.push_back(std::move(one));
  }
  return asked;
}

TEST_P(DeviceExecutorKvTest, AnAnswerIsTheSameInEveryWay) {
  const std::vector<Asked> asked = random_questions(5);
  std::vector<Tokens> alone;
  start(usual(), {.prefix_cache = false});
  EXPECT_EQ(executor_->footprint().kv.dtype, GetParam());
  EXPECT_TRUE(executor_->kernels_name() == "emulated" || executor_->kernels_name() == "cuda");
  for (const Asked& one : asked) alone.push_back(all_at_once({one})[0]);

  start(usual(), {.prefix_cache = false});
  EXPECT_EQ(all_at_once(asked), alone) << "together";

  LocalExecutor::Options chunks = usual();
  chunks.batch_tokens_max = 9;
  chunks.prefix_cache = true;
  start(chunks, {});
  EXPECT_EQ(all_at_once(asked), alone) << "in chunks";
  EXPECT_EQ(all_at_once(asked), alone) << "from the cache";

  LocalExecutor::Options small = usual();
  small.kv_bytes.reset();
  small.kv_bytes = executor_->footprint().kv.groups[0].spec.block_bytes * 7 +
                   executor_->footprint().kv.groups[1].spec.block_bytes * 24;
  small.swap_bytes = int64_t{1} << 20;
  start(small, {.prefix_cache = false});
  EXPECT_EQ(all_at_once(asked), alone) << "short of blocks";
}

// Ten seconds each in the emulation.
std::vector<tensor::DType> kv_types() {
  if (std::getenv("PELTON_FULL") == nullptr) return {tensor::DType::kF16, tensor::DType::kF8E4m3};
  return {tensor::DType::kF16, tensor::DType::kBf16, tensor::DType::kF8E4m3};
}

INSTANTIATE_TEST_SUITE_P(DeviceExecutor, DeviceExecutorKvTest, ::testing::ValuesIn(kv_types()),
                         [](const auto& info) {
                           return std::string(tensor::kv_type_name(info.param));
                         });

// A step begins before the one before it is finished, where nothing hangs on that: a token that
// only the device knows is the next row's.
TEST_F(DeviceExecutorTest, StepsBeginBesideEachOther) {
  start(usual(), {.prefix_cache = false});
  std::vector<Asked> asked = random_questions(3);
  for (Asked& one : asked) one.max_new = 24;
  const std::vector<Tokens> answers = all_at_once(asked);
  EXPECT_GT(executor_->overlapped(), 0);
  const int64_t before = executor_->overlapped();
  for (Asked& one : asked) one.sampling.logprobs = cuda::kReportedMax + 1;  // the host's
  EXPECT_EQ(all_at_once(asked), answers);
  EXPECT_EQ(executor_->overlapped(), before);
}

// So that a token counts for the next one, though the host does not know it yet: of a vocabulary of
// few tokens, whose numbers are soon high.
TEST_F(DeviceExecutorTest, PenaltiesCountATokenThatOnlyTheDeviceKnows) {
  std::vector<Asked> asked = random_questions(4);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].max_new = 40;
    request::SamplingParams& sampling = asked[i].sampling;
    sampling.repetition_penalty = i % 2 == 0 ? 1.4f : 1.0f;
    sampling.frequency_penalty = i % 4 < 2 ? 0.6f : 0.0f;
    sampling.presence_penalty = 0.5f;
    sampling.logit_bias = {{static_cast<TokenId>(i), 0.25f}};
    sampling.logprobs = i == 1 ? 5 : -1;
  }
  LocalExecutor::Options few = usual();
  few.sampled_vocab = 20;
  start(few, {.prefix_cache = false});
  const auto beside = said_at_once(asked);
  EXPECT_GT(executor_->overlapped(), 0);
  const int64_t before = executor_->overlapped();
  for (Asked& one : asked) one.sampling.logprobs = cuda::kReportedMax + 1;  // the host's
  const auto on_host = said_at_once(asked);
  EXPECT_EQ(executor_->overlapped(), before);
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSERT_EQ(beside[i].size(), on_host[i].size()) << i;
    for (size_t k = 0; k < on_host[i].size(); ++k) {
      ASSERT_EQ(beside[i][k].token, on_host[i][k].token) << i << ", " << k;
      if (i != 1) continue;
      ASSERT_EQ(beside[i][k].logprob, on_host[i][k].logprob) << k;
    }
  }
}

// Whoever wants more of a row's best than a device tells has it drawn from on the host.
TEST_F(DeviceExecutorTest, TokensDrawnOnTheDeviceAreTheHosts) {
  std::vector<Asked> asked = random_questions(8);
  for (size_t i = 0; i < asked.size(); ++i) {
    request::SamplingParams& sampling = asked[i].sampling;
    sampling.logprobs = cuda::kReportedMax;
    sampling.top_p = i % 4 == 1 ? 0.8f : 1.0f;
    sampling.top_k = i % 3 == 1 ? 30 : 0;
    sampling.min_p = i % 5 == 4 ? 0.02f : 0.0f;
    sampling.repetition_penalty = i % 4 == 3 ? 1.3f : 1.0f;
    sampling.frequency_penalty = i % 3 == 2 ? 0.5f : 0.0f;
    if (i % 4 == 2) sampling.logit_bias = {{11, 3.0f}, {300, -100.0f}};
    if (i % 3 == 0) asked[i].guide = make_guide(checkpoint_.config().vocab_size);
  }
  start(usual(), {.prefix_cache = false});
  const auto on_device = said_at_once(asked);
  for (Asked& one : asked) ++one.sampling.logprobs;
  const auto on_host = said_at_once(asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSERT_EQ(on_device[i].size(), on_host[i].size()) << i;
    for (size_t k = 0; k < on_host[i].size(); ++k) {
      const engine::SampledToken& got = on_device[i][k];
      const engine::SampledToken& wanted = on_host[i][k];
      ASSERT_EQ(got.token, wanted.token) << i << ", " << k;
      ASSERT_EQ(got.logprob, wanted.logprob) << i << ", " << k;
      ASSERT_EQ(got.top.size(), static_cast<size_t>(cuda::kReportedMax));
      for (size_t n = 0; n < got.top.size(); ++n) ASSERT_EQ(got.top[n], wanted.top[n]);
    }
  }
}

// Guesses are made and checked on the host. Answers whose log-probabilities are wanted have none.
TEST_F(DeviceExecutorTest, GuessesChangeNoAnswer) {
  std::vector<Asked> asked = random_questions(6);
  for (Asked& one : asked) one.max_new += 12;
  asked[1].guide = make_guide(checkpoint_.config().vocab_size);
  asked[2].sampling.logprobs = 3;
  start(usual(), {.prefix_cache = false});
  const auto plain = said_at_once(asked);
  speculative::Oracle::Answers known;
  for (size_t i = 0; i < asked.size(); ++i) {
    Tokens& answer = known[{asked[i].prompt, asked[i].sampling.seed}];
    for (const engine::SampledToken& token : plain[i]) answer.push_back(token.token);
  }
  for (const double acceptance : {0.0, 0.7, 1.0}) {
    LocalExecutor::Options guessing = usual();
    guessing.speculation.tokens_max = 3;
    guessing.proposer = std::make_shared<speculative::Oracle>(
        speculative::Oracle::Options{.acceptance = acceptance,
                                     .vocab_size = checkpoint_.config().vocab_size,
                                     .slot_count = 4 + 128},
        known);
    start(guessing, {.prefix_cache = false, .adaptive_drafts = false});
    const auto guessed = said_at_once(asked);
    for (size_t i = 0; i < asked.size(); ++i) {
      ASSERT_EQ(guessed[i].size(), plain[i].size()) << i;
      for (size_t k = 0; k < plain[i].size(); ++k) {
        ASSERT_EQ(guessed[i][k].token, plain[i][k].token) << i << ", " << k;
        ASSERT_EQ(guessed[i][k].logprob, plain[i][k].logprob) << i << ", " << k;
      }
    }
    const engine::SchedulerCounters counted = engine_->stats().scheduler;
    EXPECT_GT(counted.draft_tokens, 30);
    EXPECT_EQ(counted.accepted_tokens > 0, acceptance > 0);
  }
}

TEST_F(DeviceExecutorTest, AnEmbeddingIsTheCpus) {
  Tokens prompt;
  for (int i = 0; i < 21; ++i) prompt.push_back((i * 53 + 7) % 500);
  const auto vector_of = [&](request::Pooling pooling) {
    request::GenerationRequest request{.prompt = prompt};
    request.pooling = pooling;
    auto stream = engine_->submit(std::move(request));
    CHECK(stream.ok());
    while (true) {
      engine::TokenStream::Batch batch = stream->wait();
      if (batch.end) return batch.end->embedding;
    }
  };
  LocalExecutor::Options host = usual();
  host.device.reset();
  for (const auto pooling : {request::Pooling::kLast, request::Pooling::kMean}) {
    start(host, {.prefix_cache = false});
    const std::vector<float> exact = vector_of(pooling);
    start(usual(), {.prefix_cache = false});
    const std::vector<float> got = vector_of(pooling);
    ASSERT_EQ(got.size(), exact.size());
    double difference = 0;
    double norm = 1e-30;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
      norm += double{exact[i]} * exact[i];
    }
    EXPECT_LE(std::sqrt(difference / norm), 1.4e-2);
  }
}

TEST_F(DeviceExecutorTest, WhatADeviceCannotDoIsSaidAtStart) {
  LocalExecutor::Options int8 = usual();
  int8.kv_dtype = tensor::DType::kI8;
  const auto refused = LocalExecutor::create(checkpoint_, int8);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().field, "kv-cache-dtype");

  LocalExecutor::Options large = usual();
  large.kv_bytes.reset();
  large.device->info.memory_free_bytes = 1 << 20;  // less than the weights
  const auto too_large = LocalExecutor::create(checkpoint_, large);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::kDoesNotFit);

  const std::string medusa = std::string(PELTON_SOURCE_DIR) + "/models/pelton-box/medusa";
  for (const std::string& method : {std::string(R"("suffix+eagle3","model":"head")"),
                                    R"("medusa","model":")" + medusa + "\""}) {
    LocalExecutor::Options guessing = usual();
    guessing.speculation =
        *speculative::parse_config(R"({"num_speculative_tokens":3,"method":)" + method + "}");
    const auto head = LocalExecutor::create(checkpoint_, guessing);
    ASSERT_FALSE(head.ok());
    EXPECT_EQ(head.error().code, ErrorCode::kUnsupported) << head.error().message;
    EXPECT_EQ(head.error().field, "speculative-config");
  }
}

}  // namespace
}  // namespace pelton::executor
