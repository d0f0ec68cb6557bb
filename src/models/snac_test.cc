// The golden case of SNAC: what the published layers compute in float64
// (testdata/golden/audio/snac).
#include "models/snac.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

const std::string kFolder = PELTON_SOURCE_DIR "/testdata/golden/audio/snac";

std::vector<std::vector<int>> golden_codes() {
  const Json json = Json::parse(*base::read_file(kFolder + "/codes.json")).value();
  std::vector<std::vector<int>> codes;
  for (const Json& book : json.find("codes")->as_array()) {
    std::vector<int>& to = codes.emplace_back();
    for (const Json& code : book.as_array()) to.push_back(static_cast<int>(code.as_integer()));
  }
  return codes;
}

class GoldenSnac : public testing::TestWithParam<kernels::KernelChoice> {
 protected:
  void SetUp() override {
    auto made = kernels::make_kernels(GetParam(), pool_);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    kernels_ = std::move(made).value();
    auto loaded = Snac::load(kFolder, *kernels_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = std::move(loaded).value();
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Snac> model_;
};

TEST_P(GoldenSnac, SamplesAreExact) {
  const auto exact = tensor::read_npy(kFolder + "/audio_exact.npy").value();
  const auto made = model_->decode(golden_codes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->size(), exact.f32().size());
  for (size_t i = 0; i < made->size(); ++i) EXPECT_NEAR((*made)[i], exact.f32()[i], 1e-5) << i;
}

// To the bit, whatever else is wanted: at either end, in the middle, one sample, all but one.
TEST_P(GoldenSnac, SomeSamplesAreThoseOfAll) {
  const auto codes = golden_codes();
  const auto all = model_->decode(codes);
  ASSERT_TRUE(all.ok()) << all.error().message;
  const auto count = static_cast<int64_t>(all->size());
  for (const models::Snac::Samples wanted : {Snac::Samples{0, 2048},
                                             {2048, 2048},
                                             {count - 2048, 2048},
                                             {count / 2 + 13, 1},
                                             {1, count - 1},
                                             {0, count}}) {
    const auto some = model_->decode(codes, wanted, *kernels_);
    ASSERT_TRUE(some.ok()) << some.error().message;
    ASSERT_EQ(static_cast<int64_t>(some->size()), wanted.count);
    for (int64_t i = 0; i < wanted.count; ++i) {
      ASSERT_EQ((*some)[static_cast<size_t>(i)], (*all)[static_cast<size_t>(wanted.begin + i)])
          << wanted.begin << "+" << i;
    }
  }
  for (const models::Snac::Samples wrong : {Snac::Samples{-1, 2}, {0, 0}, {1, count}}) {
    EXPECT_FALSE(model_->decode(codes, wrong, *kernels_).ok());
  }
}

TEST_P(GoldenSnac, WhatIsNoCodeIsSaid) {
  std::vector<std::vector<int>> codes = golden_codes();
  codes[1][3] = 64;
  const auto beyond = model_->decode(codes);
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.error().message.find("book 1 has the code 64"), std::string::npos);
  codes = golden_codes();
  codes[2].pop_back();
  EXPECT_FALSE(model_->decode(codes).ok());
  codes.pop_back();
  EXPECT_FALSE(model_->decode(codes).ok());
  EXPECT_FALSE(model_->decode(std::vector<std::vector<int>>(3)).ok());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSnac,
                         testing::Values(kernels::KernelChoice::kReference,
                                         kernels::KernelChoice::kAvx512,
                                         kernels::KernelChoice::kAvx2));

TEST(SnacConfigFile, WhatIsWrongIsNamed) {
  const Json config = Json::parse(*base::read_file(kFolder + "/config.json")).value();
  ASSERT_TRUE(parse_snac_config(config, "c").ok());
  for (const auto& [key, value] : {std::pair("attn_window_size", "32"),
                                   {"decoder_dim", "3"},
                                   {"vq_strides", "[]"},
                                   {"decoder_rates", "[8, 0]"},
                                   {"decoder_rates", "[64, 64, 64, 64]"},
                                   {"codebook_size", "0"},
                                   {"sampling_rate", "\"x\""}}) {
    Json other = config;
    other.set(key, Json::parse(value).value());
    const auto parsed = parse_snac_config(other, "c");
    ASSERT_FALSE(parsed.ok()) << key;
    EXPECT_NE(parsed.error().message.find(key), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace pelton::models
