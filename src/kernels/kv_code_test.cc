#include "kernels/kv_code.h"

#include <cmath>
#include <cstdio>
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

// Error of q.k over |q||k|, keys coded with or without turning, one channel `outlier` times the
// rest.
double score_error(DType dtype, float outlier, bool turned, std::mt19937_64& engine) {
  constexpr int kSize = 64;
  std::normal_distribution<float> normal;
  double squares = 0;
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> q(kSize);
    std::vector<float> k(kSize);
    for (int i = 0; i < kSize; ++i) {
      q[i] = normal(engine);
      k[i] = normal(engine);
    }
    k[round % kSize] *= outlier;
    double exact = 0;
    double lengths = 0;
    double q2 = 0;
    for (int i = 0; i < kSize; ++i) {
      exact += double{q[i]} * k[i];
      lengths += double{k[i]} * k[i];
      q2 += double{q[i]} * q[i];
    }
    if (turned) {
      kv_turn(q.data(), kSize);
      kv_turn(k.data(), kSize);
    }
    const float scale = tensor::bf16_to_float(kv_scale(k.data(), kSize, dtype));
    double got = 0;
    for (int i = 0; i < kSize; ++i) {
      got += double{q[i]} * kv_decode(kv_code(k[i], scale, dtype), scale, dtype);
    }
    if (turned) got /= kSize;
    squares += (got - exact) * (got - exact) / (lengths * q2);
  }
  return std::sqrt(squares / kRounds);
}

// Why int8 is turned and fp8 is not: see docs/decisions/0009-kv-dtypes.md.
TEST(KvCode, TurningPaysForInt8WhereAChannelSticksOut) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 engine(seed);
  for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
    for (const float outlier : {1.0f, 10.0f, 30.0f, 100.0f}) {
      const double plain = score_error(dtype, outlier, false, engine);
      const double turned = score_error(dtype, outlier, true, engine);
      std::printf("%s, a channel times %g: plain %.2e, turned %.2e\n",
                  dtype == DType::kI8 ? "int8" : "fp8", static_cast<double>(outlier), plain,
                  turned);
      const double chosen = kv_is_turned(dtype) ? turned : plain;
      const double other = kv_is_turned(dtype) ? plain : turned;
      EXPECT_LT(chosen, 1.25 * other);
      if (outlier >= 30.0f) {
        EXPECT_LT(chosen, 0.7 * other);
      }
    }
  }
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
