#include "checkpoint/block_encoder.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

std::vector<uint8_t> encoded(DType type, const std::vector<float>& weights) {
  std::vector<uint8_t> out(
      static_cast<size_t>(tensor::row_bytes(type, static_cast<int64_t>(weights.size()))));
  encode_row(type, weights, out.data());
  return out;
}

float half_at(const std::vector<uint8_t>& block, size_t at) {
  return tensor::f16_to_float(static_cast<uint16_t>(block[at] | block[at + 1] << 8));
}

TEST(BlockEncoder, TheLargestWeightOfASymmetricBlockIsExact) {
  std::vector<float> weights(32, 0.25f);
  weights[20] = -4.0f;
  const std::vector<uint8_t> four = encoded(DType::kQ4_0, weights);
  EXPECT_EQ(half_at(four, 0), 0.5f);
  EXPECT_EQ(four[2 + 4], 0x09);  // element 4: 0.25 is code 8.5, up; element 20: code 0
  EXPECT_EQ(four[2 + 5], 0x99);
  const std::vector<uint8_t> five = encoded(DType::kQ5_0, weights);
  EXPECT_EQ(half_at(five, 0), 0.25f);
  // Code 17 of 32: a fifth bit but for element 20, and a low one.
  EXPECT_EQ(five[2] & five[3] & five[5], 0xFF);
  EXPECT_EQ(five[4], 0xEF);
  EXPECT_EQ(five[6], 0x11);
  EXPECT_EQ(five[6 + 4], 0x01);
}

TEST(BlockEncoder, StepsLeadFromTheLeastToTheLargest) {
  std::vector<float> weights(32, 1.0f);
  weights[0] = 8.5f;
  weights[31] = -6.5f;
  const std::vector<uint8_t> block = encoded(DType::kQ4_1, weights);
  EXPECT_EQ(half_at(block, 0), 1.0f);
  EXPECT_EQ(half_at(block, 2), -6.5f);
  EXPECT_EQ(block[4], 0x8F);  // elements 0 and 16
  EXPECT_EQ(block[4 + 15], 0x08);
}

TEST(BlockEncoder, ZerosAndTheSmallestNumbersAreZeros) {
  for (const float value : {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), -1e-39f}) {
    for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                             DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      const std::vector<uint8_t> block = encoded(type, std::vector<float>(256, value));
      EXPECT_EQ(half_at(block, type == DType::kQ6_K ? 208 : 0), 0.0f) << tensor::dtype_name(type);
    }
  }
}

// A K-quant's two floats stand for scales of 6 or 8 bits: the largest of the runs gets the highest.
TEST(BlockEncoder, TheSteepestRunOfASuperBlockHasTheHighestScale) {
  std::vector<float> weights;
  for (int i = 0; i < 256; ++i) {
    weights.push_back(static_cast<float>(i % 16) * (i / 32 == 5 ? 2.0f : 0.5f));
  }
  const std::vector<uint8_t> block = encoded(DType::kQ4_K, weights);
  EXPECT_NEAR(half_at(block, 0) * 63, 2.0f, 2e-3);
  EXPECT_EQ(half_at(block, 2), 0.0f);  // nothing is below zero
  const int fifth = (block[4 + 9] & 15) | (block[4 + 1] >> 6) << 4;
  EXPECT_EQ(fifth, 63);
  EXPECT_EQ(block[4] & 63, 16);  // a quarter of it
  for (int i = 0; i < 32; ++i) EXPECT_EQ(block[16 + i] & 15, i % 16) << i;
}

TEST(BlockEncoderDeath, OtherTypesAreRefused) {
  EXPECT_FALSE(is_encodable(DType::kQ2_K));
  EXPECT_DEATH(encoded(DType::kQ2_K, std::vector<float>(256)), "Q2_K");
}

}  // namespace
}  // namespace pelton::checkpoint
