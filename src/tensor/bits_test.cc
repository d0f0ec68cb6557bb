#include "tensor/bits.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace pelton::tensor {
namespace {

TEST(Bits, EveryF16ReadsBackEqual) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_float(static_cast<uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(float_to_f16(value), bits);
  }
}

TEST(Bits, F16RoundsToNearestEvenAndSaturates) {
  for (uint32_t bits = 0; bits < 0x7BFF;
       ++bits) {  // each neighbour pair: just below, at, above half
    const float low = f16_to_float(static_cast<uint16_t>(bits));
    const float high = f16_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(float_to_f16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, low)), bits);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(float_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(float_to_f16(1e30f), 0x7BFF);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xFBFF);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::nanf("")))));
}

TEST(Bits, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(float_to_bf16(1.00390625f), 0x3F80);  // half way, down to even
  EXPECT_EQ(float_to_bf16(1.01171875f), 0x3F82);  // half way, up to even
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
  EXPECT_EQ(bf16_to_float(0xC0A0), -5.0f);
}

TEST(Bits, Bf16UpIsNeverBelow) {
  EXPECT_EQ(float_to_bf16_up(0.0f), 0);
  EXPECT_EQ(float_to_bf16_up(1.0f), 0x3F80);
  EXPECT_EQ(float_to_bf16_up(std::nextafter(1.0f, 2.0f)), 0x3F81);
  EXPECT_EQ(bf16_to_float(float_to_bf16_up(0x1.1p-133f)), 0x1p-132f);  // subnormals too
}

TEST(Bits, E4m3ReadsTheStandardsValues) {
  EXPECT_EQ(e4m3_to_float(0x00), 0.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);    // smallest
  EXPECT_EQ(e4m3_to_float(0x07), 0x1.Cp-7f);  // largest subnormal
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6f);    // smallest normal
  EXPECT_EQ(e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_float(0xFE), -448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7F)));
  EXPECT_TRUE(std::isnan(e4m3_to_float(0xFF)));
}

TEST(Bits, E4m3RoundsToNearestEvenAndSaturates) {
  for (int bits = 0; bits < 0x7E; ++bits) {  // each neighbour pair: just below, at, above half
    const float low = e4m3_to_float(static_cast<uint8_t>(bits));
    const float high = e4m3_to_float(static_cast<uint8_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(float_to_e4m3(low), bits);
    ASSERT_EQ(float_to_e4m3(-low), bits | 0x80);
    ASSERT_EQ(float_to_e4m3(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(float_to_e4m3(std::nextafter(middle, low)), bits);
    ASSERT_EQ(float_to_e4m3(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(float_to_e4m3(464.0f), 0x7E);
  EXPECT_EQ(float_to_e4m3(1e30f), 0x7E);
  EXPECT_EQ(float_to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
  EXPECT_TRUE(std::isnan(e4m3_to_float(float_to_e4m3(std::nanf("")))));
}

TEST(Bits, E8m0IsAPowerOfTwo) {
  EXPECT_EQ(e8m0_to_float(127), 1.0f);
  EXPECT_EQ(e8m0_to_float(0), 0x1.0p-127f);
  EXPECT_EQ(e8m0_to_float(254), 0x1.0p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

}  // namespace
}  // namespace pelton::tensor
