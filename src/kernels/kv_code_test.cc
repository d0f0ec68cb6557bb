#include "kernels/kv_code.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

TEST(KvCode, TurningTwiceMultipliesBySize) {
  for (const int head_size : {16, 32, 48, 64, 80, 256}) {
    std::vector<float> x(static_cast<size_t>(head_size));
    for (int i = 0; i < head_size; ++i) x[i] = static_cast<float>(i * i % 37 - 18);
    std::vector<float> turned = x;
    kv_turn(turned.data(), head_size);
    EXPECT_NE(turned, x);
    kv_turn(turned.data(), head_size);
    for (int i = 0; i < head_size; ++i) {
      EXPECT_EQ(turned[i], x[i] * static_cast<float>(kv_turn_size(head_size))) << head_size;
    }
  }
}

TEST(KvCode, TurnSpreadsAnOutlierEvenly) {
  std::vector<float> x(64, 0.0f);
  x[5] = 8.0f;
  kv_turn(x.data(), 64);
  for (const float element : x) EXPECT_EQ(std::fabs(element), 8.0f);
}

TEST(KvCode, TheLargestElementJustFits) {
  const float x[16] = {0.3f, -2.0f, 1.9f, 0.0f};
  for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
    const float scale = tensor::bf16_to_float(kv_scale(x, 16, dtype));
    const float largest = dtype == DType::kI8 ? 127.0f : 448.0f;
    EXPECT_GE(scale * largest, 2.0f);
    EXPECT_LE(scale * largest, 2.0f * (1 + 0x1p-7f));  // rounded up to a bf16
    const double step = dtype == DType::kI8 ? scale / 2 : 2.0 / 16;
    for (const float element : x) {
      EXPECT_NEAR(kv_decode(kv_code(element, scale, dtype), scale, dtype), element, step);
    }
  }
}

TEST(KvCode, ZerosStayZeros) {
  const float x[16] = {};
  for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
    const float scale = tensor::bf16_to_float(kv_scale(x, 16, dtype));
    EXPECT_GT(scale, 0.0f);  // or its inverse would be infinite
    EXPECT_EQ(kv_decode(kv_code(0.0f, scale, dtype), scale, dtype), 0.0f);
  }
}

TEST(KvCode, WhatIsNotFiniteReadsBackAsNan) {
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    const float x[16] = {1.0f, bad};
    for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
      const float scale = tensor::bf16_to_float(kv_scale(x, 16, dtype));
      EXPECT_TRUE(std::isnan(kv_decode(kv_code(1.0f, scale, dtype), scale, dtype)));
    }
  }
}

}  // namespace
}  // namespace pelton::kernels
