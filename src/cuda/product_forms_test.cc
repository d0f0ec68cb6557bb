// The table of forms: constants fit their device, names are read as they are written, and what a
// device cannot take is told apart.
#include "cuda/product_forms.h"

#include <gtest/gtest.h>

#include "cuda/gpt_oss_shape.h"

namespace pelton::cuda {
namespace {

constexpr FormDevice kDevices[] = {
    {99 << 10, false}, {163 << 10, false}, {227 << 10, false}, {227 << 10, true}};

TEST(ProductFormsTest, ConstantsFitTheirDevice) {
  for (const FormDevice& one : kDevices) {
    for (const int experts : {32, 128}) {
      EXPECT_TRUE(are_usable(gpt_oss_shape(24, experts),
                             forms_by_constants(gpt_oss_shape(24, experts), one), one))
          << one.shared_bytes_max;
    }
    for (int rows = 1; rows <= 300; ++rows) {
      for (const bool with_low : {false, true}) {
        const ProductForm form = dense_form(rows, chunk_count(4096), with_low, one);
        if (with_low && form.columns == 0) continue;  // no such product has 4 096 columns
        EXPECT_LE(form_shared_bytes(form, chunk_count(4096), with_low), one.shared_bytes_max)
            << rows;
      }
    }
  }
  const FormDevice small{40 << 10};
  EXPECT_FALSE(are_usable(gpt_oss_shape(), forms_by_constants(gpt_oss_shape(), small), small));
}

// Prompts by wgmma where there is one, all else the same.
TEST(ProductFormsTest, ConstantsNameWideFormsForManyRowsAlone) {
  const ModelShape shape = gpt_oss_shape();
  for (const ProductKind kind : kAllProducts) {
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      const ProductForm form = form_by_constants(shape, kind, bucket_rows(bucket), kDevices[2]);
      const ProductForm other = form_by_constants(shape, kind, bucket_rows(bucket), kDevices[3]);
      EXPECT_EQ(other, form.kind == FormKind::kLarge ? wide_form(form.columns) : form);
    }
    EXPECT_EQ(form_by_constants(shape, kind, 1024, kDevices[3]).kind == FormKind::kWide,
              kind != ProductKind::kRouter);
  }
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
                           "large064", "-8x1", "8x01", "wide", "wide32", "wide128 "}) {
    EXPECT_EQ(read_form(name).columns, 0) << name;
  }
}

TEST(ProductFormsTest, WhatADeviceCannotTakeIsNotUsable) {
  const ModelShape shape = gpt_oss_shape();
  const FormDevice room = kDevices[2];
  const ProductForms good = forms_by_constants(shape, room);
  ASSERT_TRUE(are_usable(shape, good, room));
  const auto with = [&](ProductKind kind, const ProductForm& form) {
    ProductForms changed = good;
    changed.form[static_cast<int>(kind)][3] = form;
    return changed;
  };
  // Too much shared memory on a smaller device.
  EXPECT_TRUE(are_usable(shape, with(ProductKind::kQkv, {32, 2}), room));
  EXPECT_FALSE(is_usable(shape, ProductKind::kQkv, {32, 2}, kDevices[0]));
  // What only wgmma computes.
  const FormDevice with_wide = kDevices[3];
  for (const int columns : {64, 128}) {
    const ProductForm form = wide_form(columns);
    EXPECT_FALSE(are_usable(shape, with(ProductKind::kQkv, form), room));
    EXPECT_TRUE(are_usable(shape, with(ProductKind::kQkv, form), with_wide));
    EXPECT_FALSE(is_usable(shape, ProductKind::kRouter, form, with_wide));
  }
  // A form of another product, and one of none.
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kRouter, {8, 2}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kHead, {24, 1}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kO, {}), room));
  // Experts' tiles of two widths in one step.
  EXPECT_TRUE(are_usable(shape, with(ProductKind::kGateUp, {8, 4}), room));
  EXPECT_FALSE(are_usable(shape, with(ProductKind::kGateUp, {32, 2}), room));
}

}  // namespace
}  // namespace pelton::cuda
