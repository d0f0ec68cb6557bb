// Weights in the device's order, apart from any product (products_test.cc has those that it needs).
#include "cuda/pack_device_weights.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "cuda/test_device.h"

namespace pelton::cuda {
namespace {

using kernels::Format;

TEST(PackDeviceWeightsTest, Bf16TilesHoldEveryNumberAtItsPlace) {
  Random random;
  const TiledShape shapes[] = {
      {.rows = 40, .columns = 160},
      {.rows = 16, .columns = 64},
      {.rows = 3, .columns = 36},
      {.rows = 128, .columns = 96, .order = RowOrder::kHeads, .head_size = 32}};
  for (const TiledShape& shape : shapes) {
    const std::vector<float> values =
        rounded(random.floats(int64_t{shape.rows} * shape.columns, 1.0f));
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(tensor::float_to_bf16(value));
    const kernels::StoredMatrix matrix{bits.data(), nullptr, shape.rows, shape.columns,
                                       Format::kBf16};
    const auto row = [&](int64_t number, uint16_t* room) { return bf16_row(matrix, number, room); };
    const int64_t tiles = tile_count(shape.rows);
    const int64_t chunks = chunk_count(shape.columns);
    std::vector<uint8_t> packed(static_cast<size_t>(tiles_bytes(WeightType::kBf16, shape)), 0xFF);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      pack_bf16_tiles(shape, {tile, tile + 1}, row,
                      packed.data() + tile * chunks * kBf16ChunkBytes);
    }
    EXPECT_TRUE(same_bits(packed, bf16_tiles(shape, values)));  // from float32
    std::vector<uint8_t> wanted(packed.size(), 0);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      for (int r = 0; r < 16; ++r) {
        const int64_t from = row_of_tile(shape, tile, r);
        for (int column = 0; column < shape.columns && from >= 0; ++column) {
          const int c = column % 64;
          const int m = c / 16;
          const int lane = r % 8 * 4 + c % 8 / 2;
          const int word = c % 16 / 8 * 2 + r / 8;
          const int64_t at = (tile * chunks + column / 64) * kBf16ChunkBytes +
                             (m * 32 + lane) * 16 + word * 4 + c % 2 * 2;
          std::memcpy(wanted.data() + at, &bits[static_cast<size_t>(from * shape.columns + column)],
                      2);
        }
      }
    }
    EXPECT_TRUE(same_bits(packed, wanted)) << shape.rows << " x " << shape.columns;
  }
}

TEST(PackDeviceWeightsTest, WhatIsNotMxfp4IsRefused) {
  const std::vector<float> values(64 * 64, 1.0f);
  kernels::ExpertWeights weights;
  weights.gate = {values.data(), nullptr, values.data(), 1, 64, 32, Format::kF32, 64};
  weights.down = {values.data(), nullptr, values.data(), 1, 32, 32, Format::kF32, 32};
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Result<int> shift = scale_shift(weights, ExpertPart::kDown, pool);
  ASSERT_FALSE(shift.ok());
  EXPECT_EQ(shift.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pelton::cuda
