// Any bf16s come back as they were.
#include "tensor/compact_bf16.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/bits.h"

namespace pelton::tensor {
namespace {

struct Compact {
  std::vector<uint8_t> bytes;
  bool fits = false;
  int64_t raw_count = 0;
};

Compact compact(const std::vector<uint16_t>& from, int64_t rows, int64_t columns) {
  Compact out;
  out.bytes.resize(static_cast<size_t>(compact_bytes(rows, columns)));
  CompactWriter writer(from.data(), rows, columns, out.bytes.data());
  // In two threads, the later rows first.
  std::thread other([&] { writer.write_rows(rows / 2, rows); });
  writer.write_rows(0, rows / 2);
  other.join();
  out.fits = writer.fits();
  out.raw_count = writer.raw_count();
  return out;
}

std::vector<uint16_t> read(const Compact& from, int64_t rows, int64_t columns) {
  std::vector<uint16_t> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    read_compact_row(from.bytes.data() + r * row_bytes(DType::kCompactBf16, columns), columns,
                     out.data() + r * columns);
  }
  return out;
}

std::mt19937_64 engine() {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

TEST(CompactBf16, WeightsComeBackAsTheyWere) {
  std::mt19937_64 random = engine();
  std::normal_distribution<float> normal;
  constexpr int64_t kRows = 67;
  constexpr int64_t kColumns = 2880;
  std::vector<uint16_t> weights;
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    weights.push_back(float_to_bf16(random() % 50 == 0 ? 0.0f : 0.02f * normal(random)));
  }
  const Compact made = compact(weights, kRows, kColumns);
  ASSERT_TRUE(made.fits);
  EXPECT_GT(made.raw_count, 0);  // some 19 of 6 030
  EXPECT_EQ(read(made, kRows, kColumns), weights);
  // 12.25 bits, 8 bytes a row and the room for raw blocks: 77.6 % of bf16.
  EXPECT_LT(made.bytes.size(), weights.size() * 2 * 79 / 100);
}

// Each pattern of 16 bits is in one of 2 048 rows of a block, as alone or beside others.
TEST(CompactBf16, EveryPatternComesBack) {
  constexpr int64_t kRows = 2048;
  std::vector<uint16_t> weights;
  for (int i = 0; i < 65536; ++i) weights.push_back(static_cast<uint16_t>(i));
  // 32 neighbours differ in their mantissas alone: none is raw.
  const Compact made = compact(weights, kRows, 32);
  ASSERT_TRUE(made.fits);
  EXPECT_EQ(made.raw_count, 0);
  EXPECT_EQ(read(made, kRows, 32), weights);
}

TEST(CompactBf16, ExponentsAtTheEdge) {
  const auto of_exponent = [](int e) { return static_cast<uint16_t>(e << 7 | 5); };
  struct Case {
    int low;
    int high;
    bool raw;
  };
  for (const Case& edge :
       {Case{113, 127, false}, Case{112, 127, true}, Case{1, 15, false}, Case{1, 16, true},
        Case{2, 16, false}, Case{241, 255, false}, Case{240, 255, true}, Case{0, 255, false}}) {
    std::vector<uint16_t> weights(size_t{64} * 32, of_exponent(edge.high));
    weights[5] = of_exponent(edge.low);
    weights[21] = static_cast<uint16_t>(0x8000);  // -0
    const Compact made = compact(weights, 64, 32);
    ASSERT_TRUE(made.fits);
    EXPECT_EQ(made.raw_count, edge.raw ? 1 : 0) << edge.low << " and " << edge.high;
    EXPECT_EQ(read(made, 64, 32), weights);
  }
}

TEST(CompactBf16, WhatIsSpreadTooFarDoesNotFit) {
  std::mt19937_64 random = engine();
  std::vector<uint16_t> weights(size_t{40} * 64);
  for (uint16_t& weight : weights) weight = static_cast<uint16_t>(random());
  EXPECT_FALSE(compact(weights, 40, 64).fits);
}

// The example at the head of the header.
TEST(CompactBf16, WorkedExample) {
  std::vector<uint16_t> weights(32, float_to_bf16(1.0f));
  weights[0] = float_to_bf16(1.5f);
  weights[1] = float_to_bf16(-0.25f);
  weights[2] = 0;
  Compact made = compact(weights, 1, 32);
  const uint8_t* block = made.bytes.data() + kCompactHeaderBytes;
  EXPECT_EQ(block[0], 112);
  EXPECT_EQ(block[1], 0xFF);
  EXPECT_EQ(block[2], 0xFD);
  EXPECT_EQ(block[3], 0xF0);
  EXPECT_EQ(block[17], 0x40);
  EXPECT_EQ(block[18], 0x80);
  EXPECT_EQ(block[19], 0);
  weights[2] = float_to_bf16(0x1p-20f);
  made = compact(weights, 1, 32);
  EXPECT_EQ(made.bytes[kCompactHeaderBytes], kCompactRaw);
  EXPECT_EQ(read(made, 1, 32), weights);
}

}  // namespace
}  // namespace pelton::tensor
