// Which config (kernel_config.h) each product of a model is computed in, by the rows of a step: a
// table that constants fill where nothing was measured, and autotuner.h where something was.
// Shared by the host and the device library. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cuda/arena.h"
#include "cuda/kernel_config.h"
#include "cuda/persistent_step.h"

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

struct KernelConfigs {
  KernelConfig config[kProductKinds][kRowBucketCount];
  int32_t persistent[kPersistentBuckets] = {};  // 1: the steps are; constants say they are not

  const KernelConfig& at(ProductKind kind, int rows) const {
    return config[static_cast<int>(kind)][row_bucket(rows)];
  }
  bool operator==(const KernelConfigs&) const = default;
};

// The matrix of a product, or of one of its experts.
struct ProductShape {
  int rows;
  int columns;
  bool with_low;  // activations in two parts
  bool grouped;   // by expert, MXFP4
};
ProductShape product_shape(const ModelShape& shape, ProductKind kind);

// All configs that a device library can start such a product in, narrow ones first.
std::span<const KernelConfig> configs_of(ProductKind kind);

// By constants, never measured: for rows of a step, or entries of an expert, on such a device.
// Without columns: no config fits.
KernelConfig dense_config(int rows, int chunks, bool with_low, const KernelDevice& device);
KernelConfig expert_config(int entries, int chunks, const KernelDevice& device);
// Where entries are grouped already; wide ones by mma.sync.
KernelConfig expert_config_of_width(int columns);
KernelConfig default_config(const ModelShape& shape, ProductKind kind, int rows,
                            const KernelDevice& device);
KernelConfigs default_configs(const ModelShape& shape, const KernelDevice& device);

// The config is one of its kind's, and the device has what it needs.
bool is_usable(const ModelShape& shape, ProductKind kind, const KernelConfig& config,
               const KernelDevice& device);
bool has_persistent(const KernelConfigs& configs);
// All are, and both products of the experts take tiles of the same width: they share a grouping.
bool are_usable(const ModelShape& shape, const KernelConfigs& configs, const KernelDevice& device);

// "8x2": columns and row tiles; "large64", "wide64". Reading accepts nothing else, and no config
// that is not in a list of kernel_config.h; an unnamed config is read as one without columns.
std::string config_name(const KernelConfig& config);
KernelConfig read_kernel_config(std::string_view name);

}  // namespace pelton::cuda
