// Which form (product_form.h) each product of a model is computed in, by the rows of a step: a
// table that constants fill where nothing was measured, and form_choice.h where something was.
// Shared by the host and the device library. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cuda/arena.h"
#include "cuda/persistent_step.h"
#include "cuda/product_form.h"

namespace pelton::cuda {

enum class ProductKind : int32_t { kQkv, kO, kRouter, kHead, kGateUp, kDown };
inline constexpr int kProductKinds = 6;
inline constexpr ProductKind kAllProducts[kProductKinds] = {
    ProductKind::kQkv,  ProductKind::kO,      ProductKind::kRouter,
    ProductKind::kHead, ProductKind::kGateUp, ProductKind::kDown};
std::string_view product_name(ProductKind kind);

// Steps of up to so many rows (rows of logits, for the head) share a choice; beyond the last one
// all do.
inline constexpr int kRowBuckets[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024};
inline constexpr int kRowBucketCount = 10;
inline constexpr int kRowsBeyond = 2048;  // what stands for steps beyond the last bucket

constexpr int row_bucket(int rows) {
  int bucket = 0;
  while (bucket < kRowBucketCount - 1 && rows > kRowBuckets[bucket]) ++bucket;
  return bucket;
}
// The rows that stand for a bucket.
constexpr int bucket_rows(int bucket) {
  return bucket < kRowBucketCount - 1 ? kRowBuckets[bucket] : kRowsBeyond;
}

// Buckets of steps that can be persistent: whole steps in one launch (persistent_step.h).
inline constexpr int kPersistentBuckets = row_bucket(kPersistentRowsMax) + 1;

struct ProductForms {
  ProductForm form[kProductKinds][kRowBucketCount];
  int32_t persistent[kPersistentBuckets] = {};  // 1: the steps are; constants say they are not

  const ProductForm& at(ProductKind kind, int rows) const {
    return form[static_cast<int>(kind)][row_bucket(rows)];
  }
  bool operator==(const ProductForms&) const = default;
};

// The matrix of a product, or of one of its experts.
struct ProductShape {
  int rows;
  int columns;
  bool with_low;  // activations in two parts
  bool grouped;   // by expert, MXFP4
};
ProductShape product_shape(const ModelShape& shape, ProductKind kind);

// All forms that a device library can start such a product in, narrow ones first.
std::span<const ProductForm> forms_of(ProductKind kind);

// By constants, never measured: for rows of a step, or entries of an expert, on such a device.
// Without columns: no form fits.
ProductForm dense_form(int rows, int chunks, bool with_low, const FormDevice& device);
ProductForm expert_form(int entries, int chunks, const FormDevice& device);
// Where entries are grouped already; wide ones by mma.sync.
ProductForm expert_form_of_width(int columns);
ProductForm form_by_constants(const ModelShape& shape, ProductKind kind, int rows,
                              const FormDevice& device);
ProductForms forms_by_constants(const ModelShape& shape, const FormDevice& device);

// The form is one of its kind's, and the device has what it needs.
bool is_usable(const ModelShape& shape, ProductKind kind, const ProductForm& form,
               const FormDevice& device);
bool has_persistent(const ProductForms& forms);
// All are, and both products of the experts take tiles of the same width: they share a grouping.
bool are_usable(const ModelShape& shape, const ProductForms& forms, const FormDevice& device);

// "8x2": columns and row tiles; "large64", "wide64". Reading accepts nothing else, and no form that
// is not in a list of product_form.h; an unnamed form is read as one without columns.
std::string form_name(const ProductForm& form);
ProductForm read_form(std::string_view name);

}  // namespace pelton::cuda
