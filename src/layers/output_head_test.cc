// An approximate lm_head with exact rescoring: exact where tokens are likely, and a row's logits
// depend on it alone.
#include "layers/output_head.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "checkpoint/golden_checkpoint.h"
#include "layers/pack_weights.h"

namespace pelton::layers {
namespace {

class OutputHeadTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "output_head_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    source_ = folder_ + "_source";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(checkpoint::write_golden_checkpoint(checkpoint::GoldenCase::kMid, source_).ok());
    std::filesystem::copy_file(source_ + "/config.json", folder_ + "/config.json");
    const auto source = checkpoint::Checkpoint::open(source_);
    ASSERT_TRUE(source.ok());
    const PackOptions options{.matrices = MatrixWeights::kAsShipped, .coarse_head = true};
    ASSERT_TRUE(
        pack_weights(*source, options, folder_ + "/model.safetensors", pool_, [](int64_t, int64_t) {
          return true;
        }).ok());
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(source_);
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::string source_;
  std::string folder_;
};

TEST_F(OutputHeadTest, IsExactWhereTokensAreLikely) {
  const auto source = checkpoint::Checkpoint::open(source_);
  const auto packed = checkpoint::Checkpoint::open(folder_);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const int vocab = packed->config().vocab_size;
  const int hidden = packed->config().hidden_size;
  constexpr int kRows = 9;
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> x(size_t{kRows} * hidden);
  for (float& value : x) value = normal(random);
  for (const auto choice : {kernels::KernelChoice::kAuto, kernels::KernelChoice::kReference}) {
    const auto kernels = std::move(kernels::make_kernels(choice, pool_)).value();
    kernels->reserve({.tokens = kRows,
                      .hidden = hidden,
                      .inner = 32,
                      .experts = 1,
                      .experts_per_token = 1,
                      .widest = hidden,
                      .tiled = true});
    auto plain = OutputHead::load(*source, nullptr);
    auto coarse = OutputHead::load(*packed, nullptr);
    ASSERT_TRUE(plain.ok() && coarse.ok());
    EXPECT_EQ(plain->scratch_bytes(), 0);
    EXPECT_LT(coarse->weight_bytes(1), plain->weight_bytes(1) * 6 / 10);  // 512 of 2 048 rows
    std::vector<float> exact(size_t{kRows} * vocab);
    std::vector<float> got(exact.size());
    plain->forward(*kernels, exact.data(), x.data(), kRows);
    coarse->forward(*kernels, got.data(), x.data(), kRows);
    int inexact = 0;
    for (int row = 0; row < kRows; ++row) {
      const float* want = exact.data() + size_t{1} * row * vocab;
      const float* have = got.data() + size_t{1} * row * vocab;
      std::vector<float> sorted(want, want + vocab);
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const float sure = sorted[OutputHead::kLikeliest - 1];
      for (int i = 0; i < vocab; ++i) {
        if (want[i] >= sure) {
          EXPECT_EQ(have[i], want[i]) << "row " << row << ", token " << i;
        } else if (have[i] != want[i]) {
          ++inexact;
        }
      }
      std::vector<float> alone(vocab);
      coarse->forward(*kernels, alone.data(), x.data() + size_t{1} * row * hidden, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), have)) << "row " << row;
    }
    EXPECT_GT(inexact, 0) << "else nothing was coarse, and this test would show nothing";
  }
}

TEST_F(OutputHeadTest, ABrokenRowStaysBroken) {
  const auto packed = checkpoint::Checkpoint::open(folder_);
  const int hidden = packed->config().hidden_size;
  std::vector<float> x(hidden, NAN);
  std::vector<float> logits(packed->config().vocab_size);
  const auto kernels =
      std::move(kernels::make_kernels(kernels::KernelChoice::kAuto, pool_)).value();
  auto head = OutputHead::load(*packed, nullptr);
  ASSERT_TRUE(head.ok());
  head->forward(*kernels, logits.data(), x.data(), 1);
  EXPECT_TRUE(std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }));
}

}  // namespace
}  // namespace pelton::layers
