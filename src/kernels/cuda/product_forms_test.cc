// The table of forms: constants fit their device, names are read as they are written, and what a
// device cannot take is told apart.
#include "kernels/cuda/product_forms.h"

#include <gtest/gtest.h>

#include "kernels/cuda/gpt_oss_shape.h"

namespace pelton::kernels::gpu {
namespace {

constexpr int64_t kRooms[] = {int64_t{99} << 10, int64_t{163} << 10, int64_t{227} << 10};

TEST(ProductFormsTest, ConstantsFitTheirDevice) {
  for (const int64_t room : kRooms) {
    for (const int experts : {32, 128}) {
      EXPECT_TRUE(are_usable(gpt_oss_shape(24, experts),
                             forms_by_constants(gpt_oss_shape(24, experts), room), room))
          << room;
    }
    for (int rows = 1; rows <= 300; ++rows) {
      for (const bool with_low : {false, true}) {
        const ProductForm form = dense_form(rows, chunk_count(4096), with_low, room);
        if (with_low && form.columns == 0) continue;  // no such product has 4 096 columns
        EXPECT_LE(form_shared_bytes(form, chunk_count(4096), with_low), room) << rows;
      }
    }
  }
  EXPECT_FALSE(
      are_usable(gpt_oss_shape(), forms_by_constants(gpt_oss_shape(), 40 << 10), 40 << 10));
}

TEST(ProductFormsTest, RowsFindTheirBucket) {
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

TEST(ProductFormsTest, NamesAreReadAsWritten) {
  for (const ProductKind kind : kAllProducts) {
    for (const ProductForm& form : forms_of(kind)) {
      EXPECT_EQ(read_form(form_name(form)), form) << form_name(form);
    }
  }
  for (const char* name : {"", "8", "8x", "8x3", "x", "08x1", "8x1 ", "large", "large32", "64x1",
                           "large064", "-8x1", "8x01"}) {
    EXPECT_EQ(read_form(name).columns, 0) << name;
  }
}

TEST(ProductFormsTest, WhatADeviceCannotTakeIsNotUsable) {
  const ModelShape shape = gpt_oss_shape();
  const int64_t room = kRooms[2];
  const ProductForms good = forms_by_constants(shape, room);
  ASSERT_TRUE(are_usable(shape, good, room));
  const auto with = [&](ProductKind kind, const ProductForm& form) {
    ProductForms changed = good;
    changed.form[static_cast<int>(kind)][3] = form;
    return changed;
  };
  // Too much shared memory on a smaller device.
  EXPECT_TRUE(are_usable(shape, with(ProductKind::kQkv, {32, 2}), room));
  EXPECT_FALSE(is_usable(shape, ProductKind::kQkv, {32, 2}, kRooms[0]));
  // A form of another product, and one of none.
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kRouter, {8, 2}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kHead, {24, 1}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kO, {}), room));
  // Experts' tiles of two widths in one step.
  EXPECT_TRUE(are_usable(shape, with(ProductKind::kGateUp, {8, 4}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kGateUp, {32, 2}), room));
}

}  // namespace
}  // namespace pelton::kernels::gpu
