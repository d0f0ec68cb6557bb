#include "checkpoint/synthetic.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/golden_cases.h"
#include "checkpoint/weight_scales.h"
#include "families/model_config.h"
#include "families/published_config.h"
#include "families/registry.h"
#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

std::vector<ShardPlan> published_shards(const char* name) {
  const families::ModelConfig config =
      families::parse_model_config(*families::published_config(name), nullptr, name).value();
  return plan_shards(families::expected_tensors(config, families::WeightLayout::kPublished),
                     kShardBytesMax);
}

// Where the published index file of gpt-oss-20b changes from shard to shard.
TEST(Synthetic, ShardsAreCutWhereThePublishedOnesAre) {
  const std::vector<ShardPlan> shards = published_shards("gpt-oss-20b");
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[0].file, "model-00000-of-00002.safetensors");
  EXPECT_EQ(shards[0].tensors[0].name, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(shards[1].file, "model-00001-of-00002.safetensors");
  EXPECT_EQ(shards[1].tensors[0].name, "model.layers.18.self_attn.q_proj.weight");
  EXPECT_EQ(shards[2].tensors[0].name, "model.layers.6.mlp.experts.gate_up_proj_blocks");
  EXPECT_EQ(published_shards("gpt-oss-120b").size(), 15u);
}

class SyntheticFolder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "synthetic_test_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // File name -> bytes.
  std::map<std::string, std::string> write(const SyntheticOptions& options, int threads) {
    base::ThreadPool pool({.threads = threads, .pin = false});
    const std::string folder = root_ + "/" + std::to_string(threads);
    int64_t last = 0;
    int64_t total = -1;
    const Result<void> written =
        write_synthetic(options, folder, pool, [&](int64_t done, int64_t all) {
          EXPECT_GE(done, last);
          last = done;
          total = all;
        });
    EXPECT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(last, total);
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      files[entry.path().filename()] = *base::read_file(entry.path());
    }
    return files;
  }

  std::string root_;
};

TEST_F(SyntheticFolder, BytesDependOnTheSeedAloneAndNotOnThreads) {
  SyntheticOptions options = synthetic_tiny(50'000);  // the embedding is several pieces
  const auto one = write(options, 1);
  const auto three = write(options, 3);
  EXPECT_TRUE(one == three);
  options.seed = 1;
  std::filesystem::remove_all(root_);
  EXPECT_FALSE(write(options, 1).at("model.safetensors") == one.at("model.safetensors"));
}

TEST_F(SyntheticFolder, OpensWithShardsAndHasSaneWeights) {
  SyntheticOptions options = synthetic_tiny(512);
  options.shard_bytes_max = 100'000;
  EXPECT_THAT(write(options, 2), testing::Contains(testing::Key("model.safetensors.index.json")));
  const Result<Checkpoint> checkpoint = Checkpoint::open(root_ + "/2");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_GT(checkpoint->shard_count(), 3);
  EXPECT_EQ(checkpoint->config().eos_tokens, (std::vector<TokenId>{510}));

  const tensor::TensorView head = checkpoint->tensors().at("lm_head.weight");
  double sum = 0.0;
  double squares = 0.0;
  for (int64_t i = 0; i < head.element_count(); ++i) {
    const double value = tensor::bf16_to_float(head.as<uint16_t>()[i]);
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(head.element_count());
  EXPECT_NEAR(std::sqrt(squares / count), std::sqrt(2 * (std::log(512.0) - 2.1)) / std::sqrt(128.0),
              0.004);
  EXPECT_NEAR(sum / count, 0.0, 0.005);

  const tensor::TensorView scales =
      checkpoint->tensors().at("model.layers.0.mlp.experts.gate_up_proj_scales");
  double mean_square = 0.0;  // of the weights: nibbles are uniform
  for (const uint8_t scale : scales.bytes) {
    mean_square += 137.0 / 16.0 * std::ldexp(1.0, 2 * (scale - 127));
  }
  mean_square /= static_cast<double>(scales.bytes.size());
  EXPECT_NEAR(std::sqrt(mean_square), 3.0 / std::sqrt(128.0), 0.01);
}

double rms_of(const tensor::TensorView& view) {
  double squares = 0;
  for (int64_t i = 0; i < view.element_count(); ++i) {
    squares += std::pow(tensor::bf16_to_float(view.as<uint16_t>()[i]), 2);
  }
  return std::sqrt(squares / static_cast<double>(view.element_count()));
}

TEST_F(SyntheticFolder, EveryShapeIsWrittenAndOpens) {
  const std::vector<GoldenFolder> shapes = all_golden_folders(PELTON_SOURCE_DIR "/testdata/golden");
  std::set<const families::Family*> seen;
  for (const GoldenFolder& shape : shapes) {
    SCOPED_TRACE(shape.name);
    const Result<SyntheticOptions> options = synthetic_like(shape.path + "/config.json", 0);
    ASSERT_TRUE(options.ok()) << options.error().message;
    write(*options, 2);
    {
      const Result<Checkpoint> made = Checkpoint::open(root_ + "/2");
      ASSERT_TRUE(made.ok()) << made.error().message;
      seen.insert(made->config().family);
      for (const auto& [name, view] : made->tensors()) {
        if (view.dtype != tensor::DType::kBf16) continue;
        const double rms = rms_of(view);
        EXPECT_GT(rms, 1e-3) << name;
        // The last norm of a tied head with a scaled embedding gives the logits their size.
        EXPECT_LT(rms, name == "model.norm.weight" ? 50.0 : 10.0) << name;
      }
    }
    std::filesystem::remove_all(root_);
  }
  EXPECT_EQ(seen.size(), families::Registry::built_in().families().size());
}

// The published sizes, which are too large to be written here.
TEST(Synthetic, EveryTensorOfAPublishedModelHasADistribution) {
  for (const std::string_view name : families::published_models()) {
    const families::ModelConfig config =
        families::parse_model_config(*families::published_config(name), nullptr, std::string(name))
            .value();
    for (const families::ExpectedTensor& tensor :
         families::expected_tensors(config, families::WeightLayout::kPublished)) {
      if (tensor.dtype != tensor::DType::kBf16) continue;
      EXPECT_GT(weight_distribution(config, tensor.name).deviation, 0.0) << name << tensor.name;
    }
  }
}

TEST_F(SyntheticFolder, RefusesAFolderThatHoldsAModel) {
  write(synthetic_tiny(512), 1);
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Result<void> again =
      write_synthetic(synthetic_tiny(512), root_ + "/1", pool, [](int64_t, int64_t) {});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(again.error().message, testing::HasSubstr("already holds a model"));
}

TEST(Synthetic, LikeTakesNamesAndFiles) {
  const Result<SyntheticOptions> small = synthetic_like("gpt-oss-20b", 2);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->config.integer("num_hidden_layers"), 2);
  EXPECT_EQ(small->config.find("layer_types")->as_array().size(), 2u);
  EXPECT_EQ(small->generation.find("eos_token_id")->dump(), "[200002,199999,200012]");
  const Result<SyntheticOptions> file =
      synthetic_like(PELTON_SOURCE_DIR "/testdata/golden/tiny/config.json", 0);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->config.integer("hidden_size"), 128);
  EXPECT_EQ(file->generation.integer("eos_token_id"), 510);
  const Result<SyntheticOptions> none = synthetic_like("gpt-oss-7b", 0);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, testing::HasSubstr(" or a config.json"));
}

}  // namespace
}  // namespace pelton::checkpoint
