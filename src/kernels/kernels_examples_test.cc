// The worked examples of this room's comments, each as its comment has it: whoever changes an
// algorithm changes its example.
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/expert_groups.h"
#include "kernels/cpu/step_workspace.h"
#include "kernels/kernels.h"
#include "kernels/kv_quantization.h"
#include "kernels/logit_rows.h"
#include "kernels/routing.h"
#include "kernels/tiles.h"
#include "kernels/weight_row.h"
#include "tensor/bits.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

// The kernels that this processor can run.
std::vector<std::unique_ptr<Kernels>> all_kernels(base::ThreadPool& pool) {
  std::vector<std::unique_ptr<Kernels>> all;
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kAvx512,
                                    KernelChoice::kAvx2, KernelChoice::kNeon}) {
    auto made = make_kernels(choice, pool);
    if (made.ok()) all.push_back(std::move(made).value());
  }
  return all;
}

TEST(KvQuantization, HadamardExample) {
  float x[] = {1, 2, 3, 4};
  hadamard_transform(x, 4);
  EXPECT_EQ(std::vector<float>(x, x + 4), (std::vector<float>{10, -2, -4, 0}));
  const float scale = tensor::bf16_to_float(kv_scale(x, 4, DType::kI8));
  EXPECT_EQ(scale, 0.0791015625f);
  std::vector<int> codes;
  for (const float element : x) {
    codes.push_back(static_cast<int8_t>(quantize_kv(element, scale, DType::kI8)));
  }
  EXPECT_EQ(codes, (std::vector<int>{126, -25, -51, 0}));
  float read[4];
  for (size_t i = 0; i < 4; ++i) {
    read[i] = dequantize_kv(static_cast<uint8_t>(codes[i]), scale, DType::kI8);
  }
  hadamard_transform(read, 4);
  const float back[] = {0.989f, 1.978f, 3.006f, 3.995f};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(read[i] / 4, back[i], 5e-4f);
}

TEST(LogitRows, WeightExample) {
  const auto rows = make_reference_logit_rows();
  const std::vector<float> logits = {5, 4, 3.5f, -70};
  std::vector<Mass> masses(kLogitBlock);
  rows->weigh_each(logits, {.highest = 5, .sharpness = 1}, masses.data());
  EXPECT_EQ(masses[0], kWholeMass);
  EXPECT_EQ(masses[1], kWholeMass / 2);
  EXPECT_NEAR(static_cast<double>(masses[2]) / static_cast<double>(kWholeMass), 0.353553, 1e-6);
  EXPECT_EQ(masses[3], 0u);
}

TEST(ExpertGroups, SortedExample) {
  ExpertGroups groups;
  const ExpertChoice choices[] = {{3, 0.5f}, {1, 0.5f}, {1, 0.5f}, {0, 0.5f}};
  groups.group(choices, 2, 2, 4, nullptr);
  EXPECT_EQ(groups.assignments(), (std::vector<int>{3, 1, 2, 0}));
  std::vector<std::vector<int>> active;
  for (const ActiveExpert& one : groups.active()) {
    active.push_back({one.expert, one.begin, one.count});
  }
  EXPECT_EQ(active, (std::vector<std::vector<int>>{{0, 0, 1}, {1, 1, 2}, {3, 3, 1}}));
}

// A rank that has the experts 3 and 1 of four, in this order; one of the choices of 1 is another
// rank's, which has it, too.
TEST(ExpertGroups, WhatOthersComputeIsLeftOut) {
  class Dealt final : public RowExchange {
   public:
    const int32_t* places(const ExpertChoice*, int64_t) override { return places_; }
    void gather(float*, int, int64_t) override {}

   private:
    const int32_t places_[4] = {0, 1, -1, -1};
  };
  ExpertGroups groups;
  const ExpertChoice choices[] = {{3, 0.5f}, {1, 0.5f}, {1, 0.5f}, {0, 0.5f}};
  Dealt dealt;
  groups.group(choices, 2, 2, 2, &dealt);
  EXPECT_EQ(groups.assignments(), (std::vector<int>{0, 1}));
  ASSERT_EQ(groups.active().size(), 2u);
  EXPECT_EQ(groups.active()[1].expert, 1);
  EXPECT_EQ(groups.active()[1].begin, 1);
  EXPECT_EQ(groups.active()[1].count, 1);
}

TEST(StepWorkspace, SequenceOfRowsExample) {
  StepWorkspace room;
  const SequenceRows sequences[] = {{.row_begin = 0, .row_count = 2},
                                    {.row_begin = 2, .row_count = 1}};
  const int* const of_row = room.sequence_of_rows(sequences, 2);
  EXPECT_EQ(std::vector<int>(of_row, of_row + 3), (std::vector<int>{0, 0, 1}));
}

TEST(Kernels, RouteExample) {
  base::ThreadPool pool({.threads = 1, .pin = false});
  const float logits[] = {1, 4, 2, 4};
  for (const auto& kernels : all_kernels(pool)) {
    ExpertChoice choices[2];
    kernels->route(choices, logits, 1, {.experts = 4, .k = 2});
    EXPECT_EQ(choices[0].expert, 1);
    EXPECT_EQ(choices[1].expert, 3);
    EXPECT_EQ(choices[0].weight, 0.5f);
    EXPECT_EQ(choices[1].weight, 0.5f);
  }
}

TEST(Routing, GroupsExample) {
  const float logits[] = {3, -9, 2, 2, 1, 1};
  RouterShape shape{.kind = RouterShape::Kind::kSigmoid,
                    .experts = 6,
                    .k = 2,
                    .groups = 3,
                    .groups_kept = 1,
                    .group_by_two = true,
                    .normalises = true,
                    .scale = 2.5f};
  ExpertChoice choices[2];
  route_token(choices, logits, shape);
  EXPECT_EQ(choices[0].expert, 2);
  EXPECT_EQ(choices[1].expert, 3);
  EXPECT_EQ(choices[0].weight, 1.25f);
  EXPECT_EQ(choices[1].weight, 1.25f);
  const float correction[] = {0, 0, 0, 0, 1, 0};
  shape.correction = correction;
  route_token(choices, logits, shape);
  EXPECT_EQ(choices[0].expert, 4);
  EXPECT_EQ(choices[1].expert, 5);
  EXPECT_EQ(choices[0].weight, 1.25f);
  EXPECT_EQ(choices[1].weight, 1.25f);
}

// One row and one sequence of three keys in one block: scores 1, 3, 5 and values 10, 20, 30.
TEST(Kernels, AttentionExample) {
  base::ThreadPool pool({.threads = 1, .pin = false});
  constexpr int kSize = 16;
  for (const auto& kernels : all_kernels(pool)) {
    KvLayer cache{.dtype = DType::kF32, .kv_heads = 1, .head_size = kSize};
    std::vector<float> block(static_cast<size_t>(cache.block_bytes()) / sizeof(float));
    cache.data = block.data();
    std::vector<float> q(3 * kSize), k(3 * kSize), v(3 * kSize), out(3 * kSize);
    for (int t = 0; t < 3; ++t) {
      q[t * kSize] = 1;
      k[t * kSize] = static_cast<float>(1 + 2 * t);
      v[t * kSize] = static_cast<float>(10 + 10 * t);
    }
    const int32_t table[] = {0};
    const SequenceRows rows{.row_begin = 0, .row_count = 3, .start = 0, .blocks = table};
    kernels->store_kv(cache, k.data(), v.data(), kSize, &rows, 1);
    EXPECT_EQ(block[0 * 16 + 2], 5);                   // key 2, element 0
    EXPECT_EQ(block[16 * kSize + 2 * kSize + 0], 30);  // value 2, element 0
    const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_size = kSize};
    kernels->attention(out.data(), q.data(), kSize, cache, shape, &rows, 1);
    EXPECT_NEAR(out[2 * kSize], 28.51, 0.005) << kernels->name();
  }
}

// A Q8_0 block of scale 1 with these numbers in front.
std::vector<uint8_t> q8_0_block(std::initializer_list<int8_t> numbers) {
  std::vector<uint8_t> block(tensor::kQ8_0BlockBytes, 0);
  const uint16_t one = tensor::float_to_f16(1.0f);
  std::memcpy(block.data(), &one, 2);
  std::memcpy(block.data() + 2, numbers.begin(), numbers.size());
  return block;
}

std::vector<uint8_t> one_tile(Format format, const StoredMatrix& from, int64_t row_of_tile) {
  std::vector<uint8_t> tile(static_cast<size_t>(tile_bytes(format, from.cols)));
  int64_t rows[kTileRows];
  std::fill(rows, rows + kTileRows, -1);
  rows[row_of_tile] = 0;
  pack_tile(format, from, rows, tile.data());
  return tile;
}

TEST(Tiles, SecondTileExample) {
  EXPECT_EQ(tiled_bytes(Format::kInt8Tiles, 22, 64), 2 * 1088);
  EXPECT_EQ(tiled_bytes(Format::kMxfp4Tiles, 22, 64), 2 * 576);
  std::vector<float> row(64);
  row[32] = 127;  // so that the scale is 1
  row[38] = 3;
  const StoredMatrix wide{row.data(), nullptr, 1, 64, Format::kF32};
  const std::vector<uint8_t> int8 = one_tile(Format::kInt8Tiles, wide, 5);
  EXPECT_EQ(int8[42], tensor::float_to_f16(1.0f) & 0xFF);
  EXPECT_EQ(int8[43], tensor::float_to_f16(1.0f) >> 8);
  EXPECT_EQ(int8[662], 131);
  std::vector<uint8_t> pairs(32, 0);
  pairs[16 + 3] = 0x5;  // element 6 of block 1: 3
  const uint8_t scales[] = {127, 127};
  const StoredMatrix mxfp4{pairs.data(), scales, 1, 64, Format::kMxfp4Pairs};
  EXPECT_EQ(one_tile(Format::kMxfp4Tiles, mxfp4, 5)[342], 0x50);
}

TEST(Tiles, PlacesExample) {
  const std::vector<uint8_t> block = q8_0_block({0, 0, 0, 0, 0, 0, 3});
  const StoredMatrix from{block.data(), nullptr, 1, 32, Format::kQ8_0};
  const std::vector<uint8_t> int8 = one_tile(Format::kInt8Tiles, from, 5);
  EXPECT_EQ(int8[static_cast<size_t>(tensor::kInt8TileShape.weights_at(0)) + 1 * 64 + 22], 131);
  std::vector<uint8_t> pairs(16, 0);
  pairs[3] = 0x5;  // element 6: 3
  const uint8_t scale = 127;
  const StoredMatrix mxfp4{pairs.data(), &scale, 1, 32, Format::kMxfp4Pairs};
  const std::vector<uint8_t> tile = one_tile(Format::kMxfp4Tiles, mxfp4, 5);
  EXPECT_EQ(tile[static_cast<size_t>(tensor::kMxfp4TileShape.weights_at(0)) + 22], 0x50);
}

TEST(Tiles, FourBitScaleExample) {
  std::vector<float> row(32, 0.6f);
  row[0] = -8;
  const StoredMatrix from{row.data(), nullptr, 1, 32, Format::kF32};
  const std::vector<uint8_t> tile = one_tile(Format::kInt4Tiles, from, 0);
  std::vector<float> read(32);
  read_tiled_row(Format::kInt4Tiles, tile.data(), 0, 32, read.data());
  const float scale = tensor::f16_to_float(tensor::float_to_f16(0.87f));
  EXPECT_EQ(read[0], -8 * scale);
  EXPECT_EQ(read[1], scale);
}

TEST(Tiles, ProductExample) {
  base::ThreadPool pool({.threads = 1, .pin = false});
  const std::vector<uint8_t> block = q8_0_block({3, -2});
  const StoredMatrix from{block.data(), nullptr, 1, 32, Format::kQ8_0};
  const std::vector<uint8_t> tile = one_tile(Format::kInt8Tiles, from, 0);
  const auto product = [&](Kernels& kernels, Activations activations, float first, float second) {
    std::vector<float> x(32), out(1);
    x[0] = first;
    x[1] = second;
    const Linear linear{.weight = {.data = tile.data(),
                                   .rows = 1,
                                   .cols = 32,
                                   .format = Format::kInt8Tiles,
                                   .activations = activations}};
    kernels.linear(out.data(), x.data(), linear, 1, Kernels::Output::kOverwrite);
    return out[0];
  };
  for (const auto& kernels : all_kernels(pool)) {
    EXPECT_EQ(product(*kernels, Activations::kInt8, 127, 1), 379) << kernels->name();
    EXPECT_EQ(product(*kernels, Activations::kInt16, 16256, 200), 48368) << kernels->name();
  }
}

TEST(WeightRow, Mxfp4OrdersExample) {
  const uint8_t scale = 127;  // 1
  std::vector<uint8_t> pairs(16, 0);
  pairs[2] = 0x50;   // element 5: 3
  pairs[10] = 0x70;  // element 21: 6
  std::vector<uint8_t> blocks(tensor::kMxfp4BlockBytes, 0);
  blocks[0] = scale;
  blocks[1 + 5] = 0x75;  // elements 5 and 21
  std::vector<float> one(32), other(32);
  read_weight_row({pairs.data(), &scale, 1, 32, Format::kMxfp4Pairs}, 0, one.data());
  read_weight_row({blocks.data(), nullptr, 1, 32, Format::kMxfp4Blocks}, 0, other.data());
  EXPECT_EQ(one, other);
  EXPECT_EQ(one[5], 3);
  EXPECT_EQ(one[21], 6);
}

TEST(Bf16Kernels, RoundedExample) {
  EXPECT_EQ(tensor::bf16_to_float(tensor::float_to_bf16(1.01f)), 1.0078125f);
}

}  // namespace
}  // namespace pelton::kernels
