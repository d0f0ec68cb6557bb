// Encoders through the engine: a text's vector is its own, to the bit, whatever it shares its step
// with; no step is over its bound; who is first in line never waits; what is cancelled leaves
// nothing behind.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/golden_cases.h"
#include "engine/engine.h"
#include "executor/local_executor.h"
#include "models/pooled_texts.h"

namespace pelton::executor {
namespace {

using Tokens = std::vector<TokenId>;
using Vector = std::vector<float>;

constexpr int kStepTokens = 160;

class Encoders : public testing::TestWithParam<checkpoint::GoldenFolder> {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "encoder_test_" + GetParam().name;
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(checkpoint::write_weights(GetParam(), folder_).ok());
    checkpoint_.emplace(checkpoint::Checkpoint::open(folder_).value());
    if (!checkpoint_->config().is_encoder()) GTEST_SKIP() << "a decoder";
    auto made = LocalExecutor::create(
        *checkpoint_, {.threads = 2, .sequences_max = 1, .batch_tokens_max = kStepTokens});
    ASSERT_TRUE(made.ok()) << made.error().message;
    executor_ = std::move(made).value();
  }
  void TearDown() override {
    executor_.reset();
    std::filesystem::remove_all(folder_);
  }

  Tokens text(int length) {
    Tokens tokens;
    for (int i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random_() % 500));
    return tokens;
  }

  Vector exact(const Tokens& tokens, models::PooledRequest::Of of) {
    base::ThreadPool pool({.threads = 1, .pin = false});
    const auto kernels = kernels::make_kernels(kernels::KernelChoice::kAuto, pool).value();
    const auto model =
        models::load_model(*checkpoint_, *kernels, {.batch_tokens_max = kStepTokens}).value();
    const models::PooledText one{.tokens = tokens};
    return models::pooled_texts(*model, {&one, 1}, {.of = of})->front();
  }

  static engine::StreamEnd end_of(engine::TokenStream& stream) {
    for (;;) {
      engine::TokenStream::Batch batch = stream.wait();
      if (batch.end) return *std::move(batch.end);
    }
  }

  std::string folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::unique_ptr<LocalExecutor> executor_;
  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  std::mt19937 random_{11};
};

TEST_P(Encoders, AVectorIsItsTextsOwn) {
  engine::Engine engine({.prefix_cache = false}, *executor_, clock_, log_);
  const bool scores = checkpoint_->config().label_count > 0;
  const auto kind = scores ? request::Pooling::kLabels : request::Pooling::kMean;
  const auto of = scores ? models::PooledRequest::Of::kLabels : models::PooledRequest::Of::kMean;
  std::vector<Tokens> texts;
  std::vector<engine::TokenStream> streams;
  for (int i = 0; i < 48; ++i) {
    texts.push_back(text(i % 6 == 0 ? 128 : 1 + static_cast<int>(random_() % 60)));
    auto stream = engine.submit({.prompt = texts.back(), .pooling = kind});
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    streams.push_back(std::move(stream).value());
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    const engine::StreamEnd end = end_of(streams[i]);
    ASSERT_EQ(end.reason, engine::FinishReason::kEmbedded);
    const Vector wanted = exact(texts[i], of);
    ASSERT_EQ(end.embedding.size(), wanted.size());
    EXPECT_EQ(std::memcmp(end.embedding.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
  }
}

TEST_P(Encoders, WhatLeavesLeavesNothing) {
  engine::Engine engine({.prefix_cache = false}, *executor_, clock_, log_);
  std::vector<engine::TokenStream> streams;
  for (int i = 0; i < 64; ++i) {
    streams.push_back(
        engine.submit({.prompt = text(1 + i * 2), .pooling = request::Pooling::kFirst}).value());
  }
  for (size_t i = 0; i < streams.size(); i += 3) streams[i].cancel();
  for (size_t i = 0; i < streams.size(); ++i) {
    if (i % 3 == 0) continue;
    EXPECT_EQ(end_of(streams[i]).reason, engine::FinishReason::kEmbedded);
  }
  streams.clear();
  engine.drain(60'000);
  // What was cancelled goes with the engine's next turn.
  for (int i = 0; i < 1000 && !engine.ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(engine.ledger().clean());
}

TEST_P(Encoders, WhatCannotBeDoneIsSaid) {
  engine::Engine engine({.prefix_cache = false}, *executor_, clock_, log_);
  const auto generates = engine.submit({.prompt = {1, 2}});
  ASSERT_FALSE(generates.ok());
  EXPECT_EQ(generates.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(engine.submit({.prompt = text(129), .pooling = request::Pooling::kFirst}).ok());
  if (checkpoint_->config().label_count > 0) return;
  EXPECT_FALSE(engine.submit({.prompt = {1}, .pooling = request::Pooling::kLabels}).ok());
}

INSTANTIATE_TEST_SUITE_P(Cases, Encoders,
                         testing::ValuesIn(checkpoint::golden_folders(
                             std::string(PELTON_SOURCE_DIR) + "/testdata/golden/embeddings")),
                         [](const auto& info) { return info.param.test_name(); });

}  // namespace
}  // namespace pelton::executor
