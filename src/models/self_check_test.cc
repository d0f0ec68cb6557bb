#include "models/self_check.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/weight_check.h"

namespace pelton::models {
namespace {

using checkpoint::Checkpoint;

const std::string kTiny = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";

class SelfCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "self_check_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      std::filesystem::copy(kTiny + "/" + name, folder_);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  SelfCheck check(const std::string& folder) {
    const Checkpoint checkpoint = Checkpoint::open(folder).value();
    const auto reference = kernels::make_kernels(kernels::KernelChoice::kReference, pool_).value();
    const auto fast = kernels::make_kernels(kernels::KernelChoice::kAuto, pool_).value();
    std::vector<TokenId> tokens;
    for (int i = 0; i < 24; ++i) tokens.push_back((i * 31 + 5) % 512);
    int64_t last = 0;
    const SelfCheck result =
        self_check(checkpoint, *reference, *fast, tokens, [&](int64_t done, int64_t total) {
          EXPECT_EQ(done, last + 1);
          EXPECT_EQ(total, 10);
          last = done;
        }).value();
    EXPECT_EQ(last, 10);
    return result;
  }

  // Overwrites bytes of a tensor in the copy, and returns its fault.
  std::vector<checkpoint::WeightFault> damage(const std::string& tensor, int64_t at,
                                              std::vector<uint8_t> bytes) {
    {
      const Checkpoint whole = Checkpoint::open(folder_).value();
      const auto offset =
          whole.tensors().find(tensor)->second.bytes.data() - whole.files()[0].bytes().data() + at;
      std::fstream file(folder_ + "/model.safetensors",
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(offset);
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
    const Checkpoint checkpoint = Checkpoint::open(folder_).value();
    return checkpoint::check_weights(checkpoint, pool_, [](int64_t, int64_t) {});
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::string folder_;
};

TEST_F(SelfCheckTest, ASoundModelDiffersByRoundingOnly) {
  const SelfCheck result = check(kTiny);
  ASSERT_EQ(result.blocks.size(), 6u);  // embedding, two layers of two blocks, logits
  EXPECT_EQ(result.blocks[0].name, "embedding");
  EXPECT_EQ(result.blocks[3].name, "layer 1 attention");
  EXPECT_EQ(result.blocks[5].name, "logits");
  EXPECT_EQ(result.blocks[0].error_max, 0.0);
  EXPECT_LT(result.blocks[result.worst].error_max, 1e-4);
  EXPECT_GT(result.nats_per_token, 1.0);
  EXPECT_GT(result.agreement, 0.99);
  const Checkpoint checkpoint = Checkpoint::open(kTiny).value();
  EXPECT_TRUE(checkpoint::check_weights(checkpoint, pool_, [](int64_t, int64_t) {}).empty());
}

TEST_F(SelfCheckTest, NanWeightsAndScalesAreFound) {  // ST-24, ST-26
  const auto faults = damage("model.layers.1.self_attn.q_proj.weight", 2 * 77, {0xC0, 0x7F});
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].tensor, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(faults[0].what, "NaN or infinity");
  EXPECT_EQ(faults[0].first, 77);
  EXPECT_EQ(faults[0].count, 1);
  const SelfCheck result = check(folder_);
  EXPECT_EQ(result.blocks[result.worst].name, "layer 1 attention");
  EXPECT_FALSE(std::isfinite(result.blocks[result.worst].error_median));

  const auto two = damage("model.layers.0.mlp.experts.down_proj_scales", 5, {255, 1, 255});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].tensor, "model.layers.0.mlp.experts.down_proj_scales");
  EXPECT_THAT(two[0].what, testing::HasSubstr("255"));
  EXPECT_EQ(two[0].first, 5);
  EXPECT_EQ(two[0].count, 2);
}

}  // namespace
}  // namespace pelton::models
