#include "cuda/product_forms.h"

#include <algorithm>

namespace pelton::cuda {
namespace {

constexpr const char* kNames[kProductKinds] = {"qkv", "o", "router", "head", "gate_up", "down"};

// Few row tiles where there are few rows of weights: even a matrix of 2 880 rows makes more blocks
// of one tile than a device has multiprocessors. MXFP4 is a quarter of the bytes.
constexpr int kDenseRowTiles = 1;
constexpr int kExpertRowTiles = 2;

// For many rows.
ProductForm many_rows_form(int columns, const FormDevice& device) {
  return device.has_wide ? wide_form(columns) : large_form(columns);
}

}  // namespace

ProductForm dense_form(int rows, int chunks, bool with_low, const FormDevice& device) {
  if (rows > 32 && !with_low) return many_rows_form(rows > 64 ? 128 : 64, device);
  ProductForm form{rows <= 8 ? 8 : rows <= 16 || with_low ? 16 : 32, kDenseRowTiles};
  while (form.columns >= 8 && form_shared_bytes(form, chunks, with_low) > device.shared_bytes_max) {
    form.columns /= 2;
  }
  return form.columns >= 8 ? form : ProductForm{};
}

ProductForm expert_form(int entries, int chunks, const FormDevice& device) {
  constexpr ProductForm kMiddle = {32, kExpertRowTiles};
  if (entries >= 32) return many_rows_form(64, device);
  const bool fits = form_shared_bytes(kMiddle, chunks, false) <= device.shared_bytes_max;
  if (entries >= 6) return fits ? kMiddle : many_rows_form(64, device);
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
  return columns >= 64 ? large_form(columns) : ProductForm{columns, kExpertRowTiles};
}

ProductForm form_by_constants(const ModelShape& shape, ProductKind kind, int rows,
                              const FormDevice& device) {
  const ProductShape product = product_shape(shape, kind);
  if (!product.grouped) {
    return dense_form(rows, chunk_count(product.columns), product.with_low, device);
  }
  const int widest = chunk_count(std::max(shape.hidden, shape.inner));
  return expert_form(rows * shape.choices / shape.experts, widest, device);
}

ProductForms forms_by_constants(const ModelShape& shape, const FormDevice& device) {
  ProductForms forms;
  for (const ProductKind kind : kAllProducts) {
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      forms.form[static_cast<int>(kind)][bucket] =
          form_by_constants(shape, kind, bucket_rows(bucket), device);
    }
  }
  return forms;
}

bool is_usable(const ModelShape& shape, ProductKind kind, const ProductForm& form,
               const FormDevice& device) {
  const std::span<const ProductForm> known = forms_of(kind);
  if (std::find(known.begin(), known.end(), form) == known.end()) return false;
  if (form.kind == FormKind::kWide && !device.has_wide) return false;
  const ProductShape product = product_shape(shape, kind);
  return form_shared_bytes(form, chunk_count(product.columns), product.with_low) <=
         device.shared_bytes_max;
}

bool has_persistent(const ProductForms& forms) {
  return std::any_of(std::begin(forms.persistent), std::end(forms.persistent),
                     [](int32_t is_persistent) { return is_persistent != 0; });
}

bool are_usable(const ModelShape& shape, const ProductForms& forms, const FormDevice& device) {
  const auto& of = forms.form;
  for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
    for (const ProductKind kind : kAllProducts) {
      if (!is_usable(shape, kind, of[static_cast<int>(kind)][bucket], device)) {
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
  if (form.kind == FormKind::kLarge) return "large" + std::to_string(form.columns);
  if (form.kind == FormKind::kWide) return "wide" + std::to_string(form.columns);
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

}  // namespace pelton::cuda
