#include "kernels/kv_quantization.h"

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

TEST(KvQuantization, TurningTwiceMultipliesBySize) {
  for (const int head_size : {16, 32, 48, 64, 80, 256}) {
    std::vector<float> x(static_cast<size_t>(head_size));
    for (int i = 0; i < head_size; ++i) x[i] = static_cast<float>(i * i % 37 - 18);
    std::vector<float> rotated = x;
    hadamard_transform(rotated.data(), head_size);
    EXPECT_NE(rotated, x);
    hadamard_transform(rotated.data(), head_size);
    for (int i = 0; i < head_size; ++i) {
      EXPECT_EQ(rotated[i], x[i] * static_cast<float>(hadamard_size(head_size))) << head_size;
    }
  }
}

TEST(KvQuantization, HadamardTransformSpreadsAnOutlierEvenly) {
  std::vector<float> x(64, 0.0f);
  x[5] = 8.0f;
  hadamard_transform(x.data(), 64);
  for (const float element : x) EXPECT_EQ(std::fabs(element), 8.0f);
}

// Error of q.k over |q||k|, keys coded with or without turning, one channel `outlier` times the
// rest.
double score_error(DType dtype, float outlier, bool rotated, std::mt19937_64& engine) {
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
    if (rotated) {
      hadamard_transform(q.data(), kSize);
      hadamard_transform(k.data(), kSize);
    }
    const float scale = tensor::bf16_to_float(kv_scale(k.data(), kSize, dtype));
    double got = 0;
    for (int i = 0; i < kSize; ++i) {
      got += double{q[i]} * dequantize_kv(quantize_kv(k[i], scale, dtype), scale, dtype);
    }
    if (rotated) got /= kSize;
    squares += (got - exact) * (got - exact) / (lengths * q2);
  }
  return std::sqrt(squares / kRounds);
}

// Why int8 is rotated and fp8 is not: see docs/decisions/0009-kv-dtypes.md.
TEST(KvQuantization, TurningPaysForInt8WhereAChannelSticksOut) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 engine(seed);
  for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
    for (const float outlier : {1.0f, 10.0f, 30.0f, 100.0f}) {
      const double plain = score_error(dtype, outlier, false, engine);
      const double rotated = score_error(dtype, outlier, true, engine);
      std::printf("%s, a channel times %g: plain %.2e, rotated %.2e\n",
                  dtype == DType::kI8 ? "int8" : "fp8", static_cast<double>(outlier), plain,
                  rotated);
      const double chosen = kv_is_rotated(dtype) ? rotated : plain;
      const double other = kv_is_rotated(dtype) ? plain : rotated;
      EXPECT_LT(chosen, 1.25 * other);
      if (outlier >= 30.0f) {
        EXPECT_LT(chosen, 0.7 * other);
      }
    }
  }
}

TEST(KvQuantization, TheLargestElementJustFits) {
  const float x[16] = {0.3f, -2.0f, 1.9f, 0.0f};
  for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
    const float scale = tensor::bf16_to_float(kv_scale(x, 16, dtype));
    const float largest = dtype == DType::kI8 ? 127.0f : 448.0f;
    EXPECT_GE(scale * largest, 2.0f);
    EXPECT_LE(scale * largest, 2.0f * (1 + 0x1p-7f));  // rounded up to a bf16
    const double step = dtype == DType::kI8 ? scale / 2 : 2.0 / 16;
    for (const float element : x) {
      EXPECT_NEAR(dequantize_kv(quantize_kv(element, scale, dtype), scale, dtype), element, step);
    }
  }
}

TEST(KvQuantization, ZerosStayZeros) {
  const float x[16] = {};
  for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
    const float scale = tensor::bf16_to_float(kv_scale(x, 16, dtype));
    EXPECT_GT(scale, 0.0f);  // or its inverse would be infinite
    EXPECT_EQ(dequantize_kv(quantize_kv(0.0f, scale, dtype), scale, dtype), 0.0f);
  }
}

TEST(KvQuantization, WhatIsNotFiniteReadsBackAsNan) {
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    const float x[16] = {1.0f, bad};
    for (const DType dtype : {DType::kI8, DType::kF8E4m3}) {
      const float scale = tensor::bf16_to_float(kv_scale(x, 16, dtype));
      EXPECT_TRUE(std::isnan(dequantize_kv(quantize_kv(1.0f, scale, dtype), scale, dtype)));
    }
  }
}

}  // namespace
}  // namespace pelton::kernels
