// The table of configs: constants fit their device, names are read as they are written, and what a
// device cannot take is distinguished.
#include "cuda/kernel_configs.h"

#include <gtest/gtest.h>

#include "cuda/gpt_oss_shape.h"

namespace pelton::cuda {
namespace {

constexpr KernelDevice kDevices[] = {
    {99 << 10, false}, {163 << 10, false}, {227 << 10, false}, {227 << 10, true}};

TEST(KernelConfigsTest, ConstantsFitTheirDevice) {
  for (const KernelDevice& one : kDevices) {
    for (const int experts : {32, 128}) {
      EXPECT_TRUE(are_usable(gpt_oss_shape(24, experts),
                             default_configs(gpt_oss_shape(24, experts), one), one))
          << one.shared_bytes_max;
    }
    for (int rows = 1; rows <= 300; ++rows) {
      for (const bool with_low : {false, true}) {
        const KernelConfig config = dense_config(rows, chunk_count(4096), with_low, one);
        if (with_low && config.columns == 0) continue;  // no such product has 4 096 columns
        EXPECT_LE(config_shared_bytes(config, chunk_count(4096), with_low), one.shared_bytes_max)
            << rows;
      }
    }
  }
  const KernelDevice small{40 << 10};
  EXPECT_FALSE(are_usable(gpt_oss_shape(), default_configs(gpt_oss_shape(), small), small));
}

// Prompts by wgmma where there is one, all else the same.
TEST(KernelConfigsTest, ConstantsNameWideConfigsForManyRowsAlone) {
  const ModelShape shape = gpt_oss_shape();
  for (const ProductKind kind : kAllProducts) {
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      const KernelConfig config = default_config(shape, kind, bucket_rows(bucket), kDevices[2]);
      const KernelConfig other = default_config(shape, kind, bucket_rows(bucket), kDevices[3]);
      EXPECT_EQ(other, config.kind == KernelKind::kLarge ? wide_config(config.columns) : config);
    }
    EXPECT_EQ(default_config(shape, kind, 1024, kDevices[3]).kind == KernelKind::kWide,
              kind != ProductKind::kRouter);
  }
}

TEST(KernelConfigsTest, RowsFindTheirBucket) {
  for (int rows = 1; rows <= 4096; ++rows) {
    const int bucket = row_bucket(rows);
    ASSERT_LT(bucket, kRowBucketCount);
    if (bucket < kRowBucketCount - 1) {
      EXPECT_LE(rows, bucket_rows(bucket));
    }
    if (bucket > 0) {
      EXPECT_GT(rows, bucket_rows(bucket - 1));
    }
  }
}

TEST(KernelConfigsTest, NamesAreReadAsWritten) {
  for (const ProductKind kind : kAllProducts) {
    for (const KernelConfig& config : configs_of(kind)) {
      EXPECT_EQ(read_kernel_config(config_name(config)), config) << config_name(config);
    }
  }
  for (const char* name : {"", "8", "8x", "8x3", "x", "08x1", "8x1 ", "large", "large32", "64x1",
                           "large064", "-8x1", "8x01", "wide", "wide32", "wide128 "}) {
    EXPECT_EQ(read_kernel_config(name).columns, 0) << name;
  }
}

TEST(KernelConfigsTest, WhatADeviceCannotTakeIsNotUsable) {
  const ModelShape shape = gpt_oss_shape();
  const KernelDevice room = kDevices[2];
  const KernelConfigs good = default_configs(shape, room);
  ASSERT_TRUE(are_usable(shape, good, room));
  const auto with = [&](ProductKind kind, const KernelConfig& config) {
    KernelConfigs changed = good;
    changed.config[static_cast<int>(kind)][3] = config;
    return changed;
  };
  // Too much shared memory on a smaller device.
  EXPECT_TRUE(are_usable(shape, with(ProductKind::kQkv, {32, 2}), room));
  EXPECT_FALSE(is_usable(shape, ProductKind::kQkv, {32, 2}, kDevices[0]));
  // What only wgmma computes.
  const KernelDevice with_wide = kDevices[3];
  for (const int columns : {64, 128}) {
    const KernelConfig config = wide_config(columns);
    EXPECT_FALSE(are_usable(shape, with(ProductKind::kQkv, config), room));
    EXPECT_TRUE(are_usable(shape, with(ProductKind::kQkv, config), with_wide));
    EXPECT_FALSE(is_usable(shape, ProductKind::kRouter, config, with_wide));
  }
  // A config of another product, and one of none.
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kRouter, {8, 2}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kHead, {24, 1}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kO, {}), room));
  // Experts' tiles of two widths in one step.
  EXPECT_TRUE(are_usable(shape, with(ProductKind::kGateUp, {8, 4}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kGateUp, {32, 2}), room));
}

}  // namespace
}  // namespace pelton::cuda
