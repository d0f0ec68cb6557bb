#include "cuda/kernel_configs.h"

#include <algorithm>

namespace pelton::cuda {
namespace {

constexpr const char* kNames[kProductKinds] = {"qkv", "o", "router", "head", "gate_up", "down"};

// Few row tiles where there are few rows of weights: even a matrix of 2 880 rows makes more blocks
// of one tile than a device has multiprocessors. MXFP4 is a quarter of the bytes.
constexpr int kDenseRowTiles = 1;
constexpr int kExpertRowTiles = 2;

// For many rows.
KernelConfig many_rows_config(int columns, const KernelDevice& device) {
  return device.has_wide ? wide_config(columns) : large_config(columns);
}

}  // namespace

KernelConfig dense_config(int rows, int chunks, bool with_low, const KernelDevice& device) {
  if (rows > 32 && !with_low) return many_rows_config(rows > 64 ? 128 : 64, device);
  KernelConfig config{rows <= 8 ? 8 : rows <= 16 || with_low ? 16 : 32, kDenseRowTiles};
  while (config.columns >= 8 &&
         config_shared_bytes(config, chunks, with_low) > device.shared_bytes_max) {
    config.columns /= 2;
  }
  return config.columns >= 8 ? config : KernelConfig{};
}

KernelConfig expert_config(int entries, int chunks, const KernelDevice& device) {
  constexpr KernelConfig kMiddle = {32, kExpertRowTiles};
  if (entries >= 32) return many_rows_config(64, device);
  const bool fits = config_shared_bytes(kMiddle, chunks, false) <= device.shared_bytes_max;
  if (entries >= 6) return fits ? kMiddle : many_rows_config(64, device);
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

std::span<const KernelConfig> configs_of(ProductKind kind) {
  if (kind == ProductKind::kRouter) return kLowConfigs;
  if (kind == ProductKind::kGateUp || kind == ProductKind::kDown) return kExpertConfigs;
  return kDenseConfigs;
}

KernelConfig expert_config_of_width(int columns) {
  return columns >= 64 ? large_config(columns) : KernelConfig{columns, kExpertRowTiles};
}

KernelConfig default_config(const ModelShape& shape, ProductKind kind, int rows,
                            const KernelDevice& device) {
  const ProductShape product = product_shape(shape, kind);
  if (!product.grouped) {
    return dense_config(rows, chunk_count(product.columns), product.with_low, device);
  }
  const int widest = chunk_count(std::max(shape.hidden, shape.inner));
  return expert_config(rows * shape.choices / shape.experts, widest, device);
}

KernelConfigs default_configs(const ModelShape& shape, const KernelDevice& device) {
  KernelConfigs configs;
  for (const ProductKind kind : kAllProducts) {
    for (int bucket = 0; bucket < kRowBucketCount; ++bucket) {
      configs.config[static_cast<int>(kind)][bucket] =
          default_config(shape, kind, bucket_rows(bucket), device);
    }
  }
  return configs;
}

bool is_usable(const ModelShape& shape, ProductKind kind, const KernelConfig& config,
               const KernelDevice& device) {
  const std::span<const KernelConfig> known = configs_of(kind);
  if (std::find(known.begin(), known.end(), config) == known.end()) return false;
  if (config.kind == KernelKind::kWide && !device.has_wide) return false;
  const ProductShape product = product_shape(shape, kind);
  return config_shared_bytes(config, chunk_count(product.columns), product.with_low) <=
         device.shared_bytes_max;
}

bool has_persistent(const KernelConfigs& configs) {
  return std::any_of(std::begin(configs.persistent), std::end(configs.persistent),
                     [](int32_t is_persistent) { return is_persistent != 0; });
}

bool are_usable(const ModelShape& shape, const KernelConfigs& configs, const KernelDevice& device) {
  const auto& of = configs.config;
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

std::string config_name(const KernelConfig& config) {
  if (config.kind == KernelKind::kLarge) return "large" + std::to_string(config.columns);
  if (config.kind == KernelKind::kWide) return "wide" + std::to_string(config.columns);
  return std::to_string(config.columns) + "x" + std::to_string(config.row_tiles);
}

KernelConfig read_kernel_config(std::string_view name) {
  for (const ProductKind kind : kAllProducts) {
    for (const KernelConfig& config : configs_of(kind)) {
      if (config_name(config) == name) return config;
    }
  }
  return {};
}

}  // namespace pelton::cuda
