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

TEST(Bits, E8m0IsAPowerOfTwo) {
  EXPECT_EQ(e8m0_to_float(127), 1.0f);
  EXPECT_EQ(e8m0_to_float(0), 0x1.0p-127f);
  EXPECT_EQ(e8m0_to_float(254), 0x1.0p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

}  // namespace
}  // namespace pelton::tensor
