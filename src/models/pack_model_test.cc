// What --weights auto chooses: of weights and of activations, as far as a model bears it.
#include "models/pack_model.h"

#include <filesystem>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/golden_checkpoint.h"

namespace pelton::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using checkpoint::GoldenCase;
using kernels::Activations;
using testing::HasSubstr;

class PackModel : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "pack_model_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(out());
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string out() const { return root_ + "/out"; }
  Checkpoint written(GoldenCase which) const {
    EXPECT_TRUE(checkpoint::write_golden_checkpoint(which, root_ + "/model").ok());
    fs::copy_file(root_ + "/model/config.json", out() + "/config.json");
    return std::move(Checkpoint::open(root_ + "/model")).value();
  }
  PackedModel packed(const Checkpoint& source, PackModelOptions options) {
    std::mt19937 random(7);
    std::vector<TokenId> sample(96);
    for (TokenId& token : sample) {
      token = static_cast<TokenId>(random() % static_cast<uint32_t>(source.config().vocab_size));
    }
    options.sample = sample;
    const auto go_on = [](std::string_view, int64_t, int64_t) { return true; };
    auto made = pack_model(source, options, out(), pool_, go_on);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::move(made).value();
  }
  int bits() const { return Checkpoint::open(out()).value().activation_bits(); }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::string root_;
};

TEST_F(PackModel, FewerBitsOfActivationsWhereTheyLoseLittle) {
  const Checkpoint source = written(GoldenCase::kMid);
  const PackedModel fewest = packed(source, {});
  EXPECT_EQ(fewest.weights, layers::MatrixWeights::kInt8);
  EXPECT_EQ(fewest.activations, Activations::kInt8);
  EXPECT_EQ(bits(), 8);
  EXPECT_EQ(fewest.excess, "");
  EXPECT_EQ(excess(*fewest.loss, {.divergence = 1e-3}), "");  // what golden asks, to the letter
  EXPECT_THAT(describe(fewest),
              HasSubstr("attention int8, head int4 and as shipped, activations int8"));

  const PackedModel asked = packed(source, {.activations = Activations::kInt16});
  EXPECT_EQ(bits(), 16);
  EXPECT_LT(asked.loss->error_mean, fewest.loss->error_mean);
  EXPECT_THAT(describe(asked), HasSubstr("activations int16"));

  // Who asks for weights, whatever they lose, or for all of them, gets no coarser activations.
  for (const WeightChoice weights : {WeightChoice::kInt8, WeightChoice::kShipped}) {
    EXPECT_EQ(packed(source, {.weights = weights}).activations, Activations::kInt16);
    EXPECT_EQ(bits(), 16);
  }
}

TEST_F(PackModel, MassiveActivationsKeepTheirBits) {
  const Checkpoint source = written(GoldenCase::kOutlier);
  const PackedModel made = packed(source, {});
  EXPECT_EQ(made.weights, layers::MatrixWeights::kAsShipped);
  EXPECT_EQ(made.activations, Activations::kInt16);
  EXPECT_EQ(bits(), 16);
  EXPECT_EQ(made.excess, "");
  EXPECT_EQ(excess(*made.loss, {.divergence = 1e-3}), "");  // though in bf16 it loses more
  EXPECT_NE(excess(*made.in_bf16, {}), "");
  EXPECT_THAT(made.refused, HasSubstr("attention int8"));
  EXPECT_THAT(made.refused, HasSubstr("activations int8 lose too much of this model"));
}

TEST_F(PackModel, WhatAFileSaysOfItsActivationsCanBeChangedBothWays) {
  const Checkpoint source = written(GoldenCase::kMid);
  const std::string file = out() + "/model.safetensors";
  packed(source, {.activations = Activations::kInt16});
  const auto size = fs::file_size(file);
  for (const int wanted : {8, 8, 16, 16, 8}) {
    ASSERT_TRUE(
        layers::rewrite_activations(file, wanted == 8 ? Activations::kInt8 : Activations::kInt16)
            .ok());
    EXPECT_EQ(bits(), wanted);
    EXPECT_EQ(fs::file_size(file), size);
  }
  packed(source, {.activations = Activations::kInt8});  // the header has no room for more
  EXPECT_EQ(layers::rewrite_activations(file, Activations::kInt16).error().code,
            ErrorCode::kBadCheckpoint);
  EXPECT_EQ(layers::rewrite_activations(root_ + "/none", Activations::kInt16).error().code,
            ErrorCode::kIo);
}

}  // namespace
}  // namespace pelton::models
