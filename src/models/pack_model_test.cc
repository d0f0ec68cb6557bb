// What --weights auto chooses: of weights and of activations, as far as a model bears it.
#include "models/pack_model.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/golden_checkpoint.h"
#include "checkpoint/synthetic.h"
#include "tensor/bits.h"

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
  EXPECT_EQ(excess(fewest.measured->loss, golden_limits(ComparedLogits::kThatMatter)), "");
  EXPECT_THAT(verdict(fewest),
              HasSubstr("attention int8, head int4 and as shipped, activations int8"));

  const PackedModel asked = packed(source, {.activations = Activations::kInt16});
  EXPECT_EQ(bits(), 16);
  EXPECT_LT(asked.measured->loss.error_mean, fewest.measured->loss.error_mean);
  EXPECT_THAT(verdict(asked), HasSubstr("activations int16"));

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
  EXPECT_EQ(excess(made.measured->loss, golden_limits(ComparedLogits::kThatMatter)), "")
      << "golden's limits stand where a format holds them, though in bf16 it loses more";
  EXPECT_NE(excess(made.measured->in_bf16, {}), "");
  EXPECT_THAT(made.refused, HasSubstr("attention int8"));
  EXPECT_THAT(made.refused, HasSubstr("activations int8 lose too much of this model"));
}

TEST_F(PackModel, ActivationsThatWereAskedForMakeNoLimitGiveWay) {
  const Checkpoint source = written(GoldenCase::kOutlier);
  const PackedModel made = packed(source, {.activations = Activations::kInt8});
  EXPECT_EQ(made.weights, layers::MatrixWeights::kAsShipped);
  EXPECT_EQ(bits(), 8);
  EXPECT_THAT(made.excess, HasSubstr("limit 6.00e-04"));  // golden's divergence
}

TEST_F(PackModel, ADeepModelIsHeldToWhatItLosesInBf16) {
  checkpoint::SyntheticOptions deep = checkpoint::synthetic_tiny(2048);
  deep.config.set("num_hidden_layers", Json(32));
  deep.config.set("layer_types", Json());
  deep.seed = 3;  // loses clearly less than in bf16
  ASSERT_TRUE(
      checkpoint::write_synthetic(deep, root_ + "/model", pool_, [](int64_t, int64_t) {}).ok());
  fs::copy_file(root_ + "/model/config.json", out() + "/config.json");
  const Checkpoint source = std::move(Checkpoint::open(root_ + "/model")).value();
  const PackedModel made = packed(source, {});
  std::printf("%s\n", (verdict(made) + "; " + details(made)).c_str());
  EXPECT_EQ(made.weights, layers::MatrixWeights::kInt8);
  EXPECT_EQ(made.excess, "");
  EXPECT_NE(excess(made.measured->loss, golden_limits(ComparedLogits::kThatMatter)), "");
  EXPECT_THAT(made.refused, HasSubstr("no format holds the limits of small models"));
  EXPECT_EQ(excess(made.measured->loss, limits_beside(made.measured->in_bf16)), "");
}

// A weight that a float16 scale of 8-bit integers cannot hold; as shipped it is one large number.
TEST_F(PackModel, WeightsThatComputeNaNOnlyWhenTheyArePackedAreAnError) {
  EXPECT_TRUE(checkpoint::write_golden_checkpoint(GoldenCase::kTiny, root_ + "/model").ok());
  const std::string path = root_ + "/model/model.safetensors";
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    std::string header(length, '\0');
    file.read(header.data(), static_cast<std::streamsize>(length));
    const Json tensors = *Json::parse(header);
    const Json* o = tensors.find("model.layers.0.self_attn.o_proj.weight");
    ASSERT_NE(o, nullptr);
    const int64_t begin = o->find("data_offsets")->as_array()[0].as_integer();
    file.seekp(static_cast<std::streamoff>(8 + length) + begin);
    const uint16_t large = tensor::float_to_bf16(1e8f);
    file.write(reinterpret_cast<const char*>(&large), sizeof large);
  }
  fs::copy_file(root_ + "/model/config.json", out() + "/config.json");
  const Checkpoint source = std::move(Checkpoint::open(root_ + "/model")).value();
  const std::vector<TokenId> sample = {1, 2, 3, 4};
  const auto go_on = [](std::string_view, int64_t, int64_t) { return true; };
  const auto asked =
      pack_model(source, {.weights = WeightChoice::kInt8, .sample = sample}, out(), pool_, go_on);
  ASSERT_FALSE(asked.ok()) << verdict(*asked);
  EXPECT_EQ(asked.error().code, ErrorCode::kBadCheckpoint);
  EXPECT_THAT(asked.error().message, HasSubstr("computes NaN or infinity as attention int8"));
  const auto chosen = pack_model(source, {.sample = sample}, out(), pool_, go_on);
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_EQ(chosen->weights, layers::MatrixWeights::kAsShipped);
}

TEST_F(PackModel, NothingIsComputedBeforeThereIsAFirstFile) {
  const Checkpoint source = written(GoldenCase::kMid);
  std::vector<std::string> seen;
  const std::vector<TokenId> sample = {1, 2, 3, 4};
  const auto note = [&](std::string_view what, int64_t, int64_t) {
    if (seen.empty() || seen.back() != what) seen.emplace_back(what);
    return true;
  };
  ASSERT_TRUE(
      pack_model(source, {.weights = WeightChoice::kInt8, .sample = sample}, out(), pool_, note)
          .ok());
  EXPECT_THAT(seen, testing::ElementsAre(HasSubstr("packing"), "computing a text as shipped",
                                         "comparing weights"));
}

TEST_F(PackModel, CanBeInterruptedAtEachLook) {
  const Checkpoint source = written(GoldenCase::kMid);
  const std::vector<TokenId> sample = {1, 2, 3, 4};
  int allowed = 0;
  for (bool done = false; !done; ++allowed) {
    int looks = 0;
    const auto go_on = [&](std::string_view, int64_t, int64_t) { return looks++ < allowed; };
    const auto made =
        pack_model(source, {.weights = WeightChoice::kInt8, .sample = sample}, out(), pool_, go_on);
    done = made.ok();
    EXPECT_TRUE(done || made.error().code == ErrorCode::kCancelled) << allowed;
  }
  EXPECT_GT(allowed, 6);  // packing, the text twice, comparing
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
