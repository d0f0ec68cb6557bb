#include "families/kv_groups.h"

#include <initializer_list>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::families {
namespace {

using testing::ElementsAre;

ModelConfig model_of(std::initializer_list<AttentionKind> layers) {
  ModelConfig config{.kv_head_count = 8, .head_size = 64, .sliding_window = 128};
  for (const AttentionKind kind : layers) config.layers.push_back({.attention = kind});
  return config;
}

TEST(KvGroups, LayersOfOneKindShareAGroup) {
  using enum AttentionKind;
  const KvGroups groups = kv_groups(model_of({kSliding, kFull, kSliding}), {});
  ASSERT_EQ(groups.specs.size(), 2);
  EXPECT_THAT(groups.of_layer, ElementsAre(1, 0, 1));
  // 16 tokens, keys and values of 8 heads of 64 elements in two bytes.
  constexpr int64_t kLayerBytes = 16 * 2 * 8 * 64 * 2;
  EXPECT_EQ(groups.specs[0], (kv::GroupSpec{.name = "full", .block_bytes = kLayerBytes}));
  EXPECT_EQ(
      groups.specs[1],
      (kv::GroupSpec{.name = "window", .sliding_window = 128, .block_bytes = 2 * kLayerBytes}));
  EXPECT_THAT(groups.layer_block_bytes, ElementsAre(kLayerBytes, kLayerBytes));
}

TEST(KvGroups, OnlyThoseThatHaveLayers) {
  using enum AttentionKind;
  const KvGroups full = kv_groups(model_of({kFull, kFull}), {});
  ASSERT_EQ(full.specs.size(), 1);
  EXPECT_FALSE(full.specs[0].slides()) << "a window that no layer uses is none";
  const KvGroups sliding = kv_groups(model_of({kSliding, kSliding}), {});
  ASSERT_EQ(sliding.specs.size(), 1);
  EXPECT_EQ(sliding.specs[0].sliding_window, 128);
  EXPECT_THAT(sliding.of_layer, ElementsAre(0, 0));
}

}  // namespace
}  // namespace pelton::families
