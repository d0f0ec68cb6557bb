// How a step is laid out for a device: sizes that graphs are kept by, attention divided among
// warps, and steps that must not reach a device.
#include "cuda/step_arrays.h"

#include <cstring>

#include <gtest/gtest.h>

#include "cuda/device_abi.h"
#include "cuda/gpt_oss_shape.h"
#include "tensor/kv_block.h"

namespace pelton::cuda {
namespace {

Limits limits() {
  return {.rows_max = 512,
          .sequences_max = 64,
          .logit_rows_max = 64,
          .positions_max = 32768,
          .kv_blocks = {10000, 2000},
          .partial_bytes_max = 64 << 20};
}

// Decodes of so many sequences, all at `start`.
struct Decodes {
  Decodes(int count, int start) : tokens(static_cast<size_t>(count), 5), blocks(4096, 3) {
    for (int i = 0; i < count; ++i) {
      sequences.push_back({start, 1, {blocks.data(), blocks.data()}});
      rows.push_back(i);
    }
    step = {tokens.data(), count, sequences.data(), count, rows.data(), count};
  }

  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  std::vector<StepSequence> sequences;
  std::vector<int32_t> rows;
  Step step;
};

TEST(StepArraysTest, ATokenOfTheStepBeforeWasDrawnOnTheDevice) {
  Decodes decodes(2, 300);
  decodes.tokens[1] = ~1;
  StepArrays arrays(gpt_oss_shape(), limits());
  const std::vector<uint8_t> both{1, 1};
  EXPECT_EQ(arrays.set(decodes.step, both), nullptr);
  EXPECT_NE(arrays.set(decodes.step), nullptr) << "there was no step before";
  EXPECT_NE(arrays.set(decodes.step, std::vector<uint8_t>{1}), nullptr);
  EXPECT_NE(arrays.set(decodes.step, std::vector<uint8_t>{1, 0}), nullptr) << "the host drew it";
}

TEST(StepArraysTest, SizesGrowByAQuarter) {
  int previous = 0;
  int different = 0;
  for (int count = 0; count <= 4096; ++count) {
    const int size = rounded_up(count);
    ASSERT_GE(size, count);
    ASSERT_GE(size, previous);
    ASSERT_LE(size, count <= 8 ? 2 * count : count + count / 4) << count;
    ASSERT_EQ(rounded_up(size), size);
    different += size != previous ? 1 : 0;
    previous = size;
  }
  EXPECT_LE(different, 45);
}

TEST(StepArraysTest, OneGraphServesARangeOfPositions) {
  StepArrays arrays(gpt_oss_shape(), limits());
  int sizes = 0;
  StepSizes last;
  for (int start = 1000; start < 2000; ++start) {
    const Decodes decodes(7, start);
    ASSERT_EQ(arrays.set(decodes.step), nullptr);
    if (!(arrays.sizes() == last)) ++sizes;
    last = arrays.sizes();
    EXPECT_EQ(last.rows, 8);
    EXPECT_EQ(last.logit_rows, 8);
    EXPECT_EQ(last.items[1], 8);
  }
  EXPECT_LE(sizes, 5);
}

TEST(StepArraysTest, LongDecodesAreDividedIfThereIsRoom) {
  StepArrays arrays(gpt_oss_shape(), limits());
  const Decodes some(4, 1000);
  ASSERT_EQ(arrays.set(some.step), nullptr);
  EXPECT_EQ(arrays.sizes().spans, 8);
  EXPECT_EQ(arrays.sizes().items[0], 32);
  EXPECT_EQ(arrays.sizes().items[1], 4);
  // 64 bytes KiB of partials hold 3971 spans of all heads; these would be 64 times 256.
  const Decodes many(64, 32000);
  ASSERT_EQ(arrays.set(many.step), nullptr);
  EXPECT_EQ(arrays.sizes().spans, 0);
  EXPECT_EQ(arrays.sizes().items[0], 64);
}

TEST(StepArraysTest, ItemsCoverEveryRowOnce) {
  StepArrays arrays(gpt_oss_shape(), limits());
  Decodes step(2, 300);
  step.sequences.push_back({70, 9, {step.blocks.data(), step.blocks.data()}});
  step.tokens.resize(11, 5);
  step.step = {step.tokens.data(), 11, step.sequences.data(), 3, step.rows.data(), 2};
  ASSERT_EQ(arrays.set(step.step), nullptr);
  const StepLayout layout = arrays.layout();
  for (const int group : {0, 1}) {
    std::vector<int> spans(11, 0);
    const int count = arrays.sizes().items[group];
    for (int i = 0; i < count; ++i) {
      AttentionItem item;
      std::memcpy(&item, arrays.bytes().data() + layout.items[group] + i * sizeof item,
                  sizeof item);
      for (int r = 0; r < item.row_count; ++r) {
        spans[static_cast<size_t>(item.first_row + r)] += item.span_end - item.span_begin;
      }
    }
    for (int row = 0; row < 2; ++row) {  // positions 300: spans 0, 1, 2, of a window 1 and 2
      EXPECT_EQ(spans[static_cast<size_t>(row)], group == 1 ? 2 : 3);
    }
    for (int row = 2; row < 11; ++row) EXPECT_EQ(spans[static_cast<size_t>(row)], 1) << row;
  }
}

TEST(StepArraysTest, TheLargestStepFitsItsRoom) {
  const ModelShape shape = gpt_oss_shape();
  const Limits most = limits();
  StepArrays arrays(shape, most);
  for (const int start : {0, 127, 128, 8000, 32767}) {
    for (const int count : {1, 17, 64}) {
      const Decodes decodes(count, start);
      ASSERT_EQ(arrays.set(decodes.step), nullptr);
      EXPECT_LE(static_cast<int64_t>(arrays.bytes().size()), step_bytes_max(shape, most));
    }
  }
}

TEST(StepArraysTest, ImpossibleStepsAreRefused) {
  StepArrays arrays(gpt_oss_shape(), limits());
  const auto refused = [&](const char* why, auto change) {
    Decodes decodes(3, 200);
    change(decodes);
    const char* const said = arrays.set(decodes.step);
    EXPECT_NE(said, nullptr) << why;
  };
  refused("token", [](Decodes& d) { d.tokens[1] = 201088; });
  refused("token", [](Decodes& d) { d.tokens[1] = -1; });
  refused("position", [](Decodes& d) { d.sequences[0].start = 32768; });
  refused("position", [](Decodes& d) { d.sequences[0].start = -1; });
  refused("count", [](Decodes& d) { d.sequences[0].count = 0; });
  refused("rows", [](Decodes& d) { d.step.row_count = 4; });
  refused("block", [](Decodes& d) { d.blocks[12] = -1; });
  refused("block", [](Decodes& d) { d.blocks[12] = 2000; });  // of the window group
  refused("block", [](Decodes& d) { d.blocks[0] = 10000; });
}

TEST(ArenaTest, PlacesLieApartAndAdd) {
  const ModelShape shape = gpt_oss_shape();
  const ArenaLayout arena = arena_layout(shape, limits());
  // Weights as the checkpoint has them: 13.76 GB, of which 12 are what tiles fill up.
  EXPECT_NEAR(static_cast<double>(arena.weight_bytes), 13.77e9, 0.03e9);
  const int64_t token = int64_t{2} * 8 * 64 * 2;
  EXPECT_EQ(kv_block_bytes(shape, KvType::kF16), 16 * token);
  // What the engine's memory is divided by.
  const tensor::KvBlockShape block{shape.kv_heads, shape.head_size, kBlockTokens};
  EXPECT_EQ(kv_block_bytes(shape, KvType::kF16),
            tensor::kv_block_bytes(tensor::DType::kF16, block));
  EXPECT_EQ(kv_block_bytes(shape, KvType::kBf16),
            tensor::kv_block_bytes(tensor::DType::kBf16, block));
  EXPECT_EQ(kv_block_bytes(shape, KvType::kFp8),
            tensor::kv_block_bytes(tensor::DType::kF8E4m3, block));
  EXPECT_GE(arena.kv_bytes, 12 * 16 * token * (10000 + 2000));
  EXPECT_EQ(arena.sampled.offset + (arena.sampled.bytes + 255) / 256 * 256, arena.bytes());
  int64_t end = 0;
  for (const LayerPlaces& layer : arena.layers) {
    for (const Place& place :
         {layer.attention_norm, layer.qkv, layer.qkv_bias, layer.sinks, layer.o, layer.o_bias,
          layer.expert_norm, layer.router, layer.router_bias, layer.gate_up, layer.gate_up_scales,
          layer.gate_up_bias, layer.down, layer.down_scales, layer.down_bias}) {
      EXPECT_EQ(place.offset % 256, 0);
      EXPECT_GE(place.offset, end);
      EXPECT_GT(place.bytes, 0);
      end = place.offset + place.bytes;
    }
  }
}

}  // namespace
}  // namespace pelton::cuda
