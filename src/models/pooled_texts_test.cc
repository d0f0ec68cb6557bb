// The golden cases of embeddings and scores: what an independent float64 implementation computes
// (testdata/golden/embeddings), by every kind of kernels, alone and packed with others of every
// length, where not a bit may differ.
#include "models/pooled_texts.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/golden_cases.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

using Of = PooledRequest::Of;
using Vectors = std::vector<std::vector<float>>;

std::vector<checkpoint::GoldenFolder> cases() {
  return checkpoint::golden_folders(std::string(PELTON_SOURCE_DIR) + "/testdata/golden/embeddings");
}

// Of `first` the distance from `exact`, as a part of its length.
double relative_error(std::span<const float> got, std::span<const float> exact) {
  double apart = 0;
  double length = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    apart += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    length += double{exact[i]} * exact[i];
  }
  return std::sqrt(apart / length);
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

class GoldenTexts : public testing::TestWithParam<checkpoint::GoldenFolder> {
 protected:
  void SetUp() override {
    // Of its own: the suites of one model run at once.
    folder_ =
        testing::TempDir() + "golden_texts_" + GetParam().name + "_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
    const Result<void> written = checkpoint::write_weights(GetParam(), folder_);
    ASSERT_TRUE(written.ok()) << written.error().message;
    auto opened = checkpoint::Checkpoint::open(folder_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    checkpoint_.emplace(std::move(opened).value());
    sequences_ = Json::parse(*base::read_file(GetParam().path + "/sequences.json")).value();
    for (const Json& sequence : sequences_.find("sequences")->as_array()) {
      PooledText& text = texts_.emplace_back();
      for (const Json& id : sequence.as_array()) {
        text.tokens.push_back(static_cast<TokenId>(id.as_integer()));
      }
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  PooledRequest request() const {
    const std::string pooling = GetParam().facts.string("pooling").value();
    if (GetParam().facts.find("head") != nullptr) return {.of = Of::kLabels};
    if (pooling == "yes_no") {
      const auto token = [&](const char* name) {
        return static_cast<TokenId>(GetParam().facts.integer(name).value());
      };
      return {.of = Of::kTokens, .label_tokens = {token("no"), token("yes")}};
    }
    return {.of = pooling == "cls" ? Of::kFirst : pooling == "mean" ? Of::kMean : Of::kLast};
  }

  std::unique_ptr<Model> model(kernels::KernelChoice choice, int step_tokens) {
    kernels_ = kernels::make_kernels(choice, pool_).value();
    auto loaded = load_model(*checkpoint_, *kernels_, {.batch_tokens_max = step_tokens});
    CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
    return std::move(loaded).value();
  }

  // Within `tolerance` of a vector's length, or of a score.
  void expect_exact(Vectors vectors, double tolerance) const {
    ASSERT_EQ(vectors.size(), texts_.size());
    const Json* const scores = sequences_.find("scores");
    if (scores == nullptr) {
      const auto exact = tensor::read_npy(GetParam().path + "/embeddings_exact.npy").value();
      const auto size = static_cast<size_t>(exact.shape[1]);
      for (size_t i = 0; i < vectors.size(); ++i) {
        normalise(vectors[i]);
        EXPECT_LE(relative_error(vectors[i], exact.f32().subspan(i * size, size)), tolerance) << i;
      }
      return;
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      const double logit =
          vectors[i].size() == 1 ? vectors[i][0] : double{vectors[i][1]} - double{vectors[i][0]};
      EXPECT_NEAR(sigmoid(logit), scores->as_array()[i].as_number(), tolerance) << i;
    }
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::string folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  Json sequences_;
  std::vector<PooledText> texts_;
  std::unique_ptr<kernels::Kernels> kernels_;
};

TEST_P(GoldenTexts, ReferenceKernelsAreExact) {
  const auto made = model(kernels::KernelChoice::kReference, 512);
  const auto vectors = pooled_texts(*made, texts_, request());
  ASSERT_TRUE(vectors.ok()) << vectors.error().message;
  expect_exact(*vectors, 1e-5);
}

// 1e-5 too, where an encoder computes in float32; a decoder's cache is float16.
TEST_P(GoldenTexts, FastKernelsAreClose) {
  for (const auto choice : {kernels::KernelChoice::kAvx512, kernels::KernelChoice::kAvx2,
                            kernels::KernelChoice::kNeon}) {
    if (!kernels::make_kernels(choice, pool_).ok()) continue;
    const auto made = model(choice, 512);
    PooledRequest asked = request();
    asked.kv_dtype = tensor::DType::kF16;
    const auto vectors = pooled_texts(*made, texts_, asked);
    ASSERT_TRUE(vectors.ok()) << vectors.error().message;
    expect_exact(*vectors, checkpoint_->config().is_encoder() ? 1e-5 : 1e-2);
  }
}

// Each text alone, and among 31 others of every length, in steps of several sizes.
TEST_P(GoldenTexts, PackingChangesNothing) {
  std::vector<PooledText> many;
  const int count = checkpoint_->config().is_encoder() ? 32 : 4;  // a decoder's go one by one
  for (int i = 0; i < count; ++i) {
    many.push_back(texts_[static_cast<size_t>(i) % texts_.size()]);
    std::vector<TokenId>& tokens = many.back().tokens;
    if (i >= 8) tokens.resize(1 + (tokens.size() * static_cast<size_t>(i)) / 32);
  }
  const auto choice = kernels::KernelChoice::kAuto;
  const auto alone = model(choice, 512);
  Vectors expected;
  for (const PooledText& text : many) {
    expected.push_back(pooled_texts(*alone, {&text, 1}, request())->front());
  }
  for (const int step : {256, 1000}) {
    const auto made = model(choice, step);
    const auto vectors = pooled_texts(*made, many, request());
    ASSERT_TRUE(vectors.ok()) << vectors.error().message;
    for (size_t i = 0; i < many.size(); ++i) {
      ASSERT_EQ((*vectors)[i].size(), expected[i].size());
      EXPECT_EQ(
          std::memcmp((*vectors)[i].data(), expected[i].data(), expected[i].size() * sizeof(float)),
          0)
          << i << " in steps of " << step;
    }
  }
}

// The states of the first text behind the embedding and behind each layer.
TEST_P(GoldenTexts, HiddenStatesAreExact) {
  const std::string file = GetParam().path + "/hidden_first_exact.npy";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "the case has none";
  const auto exact = tensor::read_npy(file).value();
  const auto made = model(kernels::KernelChoice::kReference, 512);
  ForwardInput input;
  input.tokens = texts_[0].tokens;
  input.sequences.push_back({.count = static_cast<int>(input.tokens.size()), .tables = {}});
  KvStorage::Options none;
  none.block_counts.assign(1, 0);
  KvStorage kv = KvStorage::allocate(made->config(), none).value();
  const auto elements = static_cast<size_t>(exact.shape[1] * exact.shape[2]);
  int seen = 0;
  const auto see = [&](int index, const float* x, int) {
    if (index % 2 != 0) return;  // within a layer
    const auto at = static_cast<size_t>(index / 2) * elements;
    EXPECT_LE(relative_error({x, elements}, exact.f32().subspan(at, elements)), 1e-5) << index;
    ++seen;
  };
  HiddenTap tap(see);
  made->forward(input, kv, &tap);
  EXPECT_EQ(seen, exact.shape[0]);
}

TEST_P(GoldenTexts, WhatCannotBeComputedIsSaid) {
  const auto made = model(kernels::KernelChoice::kReference, 512);
  std::vector<PooledText> texts(1);
  EXPECT_FALSE(pooled_texts(*made, texts, request()).ok());
  texts[0].tokens = {checkpoint_->config().vocab_size};
  EXPECT_FALSE(pooled_texts(*made, texts, request()).ok());
  if (!checkpoint_->config().is_encoder()) return;
  texts[0].tokens.assign(static_cast<size_t>(checkpoint_->config().context_max) + 1, 5);
  const auto long_one = pooled_texts(*made, texts, request());
  ASSERT_FALSE(long_one.ok());
  EXPECT_NE(long_one.error().message.find("at most 128"), std::string::npos)
      << long_one.error().message;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTexts, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.test_name(); });

}  // namespace
}  // namespace pelton::models
