#include "kernels/cuda/product_forms.h"

#include <algorithm>

namespace pelton::kernels::gpu {
namespace {

constexpr const char* kNames[kProductKinds] = {"qkv", "o", "router", "head", "gate_up", "down"};

// Few row tiles where there are few rows of weights: even a matrix of 2 880 rows makes more blocks
// of one tile than a device has multiprocessors. MXFP4 is a quarter of the bytes.
constexpr int kDenseRowTiles = 1;
constexpr int kExpertRowTiles = 2;

constexpr ProductForm kLarge64 = {64, 0, 1};
constexpr ProductForm kLarge128 = {128, 0, 1};

}  // namespace

ProductForm dense_form(int rows, int chunks, bool with_low, int64_t shared_bytes_max) {
  if (rows > 64 && !with_low) return kLarge128;
  if (rows > 32 && !with_low) return kLarge64;
  ProductForm form{rows <= 8 ? 8 : rows <= 16 || with_low ? 16 : 32, kDenseRowTiles};
  while (form.columns >= 8 && form_shared_bytes(form, chunks, with_low) > shared_bytes_max) {
    form.columns /= 2;
  }
  return form.columns >= 8 ? form : ProductForm{};
}

ProductForm expert_form(int entries, int chunks, int64_t shared_bytes_max) {
  constexpr ProductForm kWide = {32, kExpertRowTiles};
  if (entries >= 32) return kLarge64;
  const bool fits = form_shared_bytes(kWide, chunks, false) <= shared_bytes_max;
  if (entries >= 6) return fits ? kWide : kLarge64;
  return {8, kExpertRowTiles};
}

std::string_view product_name(ProductKind kind) {
  return kNames[static_cast<int>(kind)];
}

ProductShape product_shape(const ModelShape& shape, ProductKind kind) {
  switch (kind) {
    case ProductKind::kQkv:
      return {shape.qkv_rows(), shape.hidden, false, false};
    case ProductKind::kO:
      return {shape.hidden, shape.attention_columns(), false, false};
    case ProductKind::kRouter:
      return {shape.experts, shape.hidden, true, false};
    case ProductKind::kHead:
      return {shape.vocab, shape.hidden, false, false};
    case ProductKind::kGateUp:
      return {2 * shape.inner, shape.hidden, false, true};
    case ProductKind::kDown:
      break;
  }
  return {shape.hidden, shape.inner, false, true};
}

std::span<const ProductForm> forms_of(ProductKind kind) {
  if (kind == ProductKind::kRouter) return kLowForms;
  if (kind == ProductKind::kGateUp || kind == ProductKind::kDown) return kExpertForms;
  return kDenseForms;
}

ProductForm expert_form_of_width(int columns) {
  return columns >= 64 ? ProductForm{columns, 0, 1} : ProductForm{columns, kExpertRowTiles};
}

ProductForm form_by_constants(const ModelShape& shape, ProductKind kind, int rows,
                              int64_t shared_bytes_max) {
  const ProductShape product = product_shape(shape, kind);
  if (!product.grouped) {
    return dense_form(rows, chunk_count(product.columns), product.with_low, shared_bytes_max);
  }
  const int widest = chunk_count(std::max(shape.hidden, shape.inner));
  return expert_form(rows * shape.choices / shape.experts, widest, shared_bytes_max);
}

ProductForms forms_by_constants(const ModelShape& shape, int64_t shared_bytes_max) {
  ProductForms forms;
  for (const ProductKind kind : kAllProducts) {
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      forms.form[static_cast<int>(kind)][bucket] =
          form_by_constants(shape, kind, bucket_rows(bucket), shared_bytes_max);
    }
  }
  return forms;
}

bool is_usable(const ModelShape& shape, ProductKind kind, const ProductForm& form,
               int64_t shared_bytes_max) {
  const std::span<const ProductForm> known = forms_of(kind);
  if (std::find(known.begin(), known.end(), form) == known.end()) return false;
  const ProductShape product = product_shape(shape, kind);
  return form_shared_bytes(form, chunk_count(product.columns), product.with_low) <=
         shared_bytes_max;
}

bool are_usable(const ModelShape& shape, const ProductForms& forms, int64_t shared_bytes_max) {
  const auto& of = forms.form;
  for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
    for (const ProductKind kind : kAllProducts) {
      if (!is_usable(shape, kind, of[static_cast<int>(kind)][bucket], shared_bytes_max)) {
        return false;
      }
    }
    if (of[static_cast<int>(ProductKind::kGateUp)][bucket].columns !=
        of[static_cast<int>(ProductKind::kDown)][bucket].columns) {
      return false;
    }
  }
  return true;
}

std::string form_name(const ProductForm& form) {
  if (form.is_large != 0) return "large" + std::to_string(form.columns);
  return std::to_string(form.columns) + "x" + std::to_string(form.row_tiles);
}

ProductForm read_form(std::string_view name) {
  for (const ProductKind kind : kAllProducts) {
    for (const ProductForm& form : forms_of(kind)) {
      if (form_name(form) == name) return form;
    }
  }
  return {};
}

}  // namespace pelton::kernels::gpu
