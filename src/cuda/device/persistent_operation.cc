#include <algorithm>

#include "cuda/device/launch.h"
#include "cuda/device/operations.h"
#include "cuda/device/persistent.h"
#include "cuda/kernel_config.h"
#include "cuda/kernel_configs.h"

namespace pelton::cuda {
namespace {

// What stands behind PersistentShared: the room of the product that needs the most.
int64_t shared_bytes(const ModelShape& shape) {
  int64_t most = 0;
  for (const ProductKind kind : kAllProducts) {
    const ProductShape product = product_shape(shape, kind);
    const KernelConfig config{kPersistentRowsMax, product.grouped ? 2 : 1};
    most =
        std::max(most, config_shared_bytes(config, chunk_count(product.columns), product.with_low));
  }
  return int64_t{sizeof(PersistentShared)} + most;
}

using Kernel = void (*)(PersistentStep);

template <int kHead>
Kernel kernel_of(KvType type) {
  switch (type) {
    case KvType::kBf16:
      return persistent_kernel<kHead, KvType::kBf16>;
    case KvType::kFp8:
      return persistent_kernel<kHead, KvType::kFp8>;
    default:
      return persistent_kernel<kHead, KvType::kF16>;
  }
}

Kernel kernel_of(const ModelShape& shape, KvType type) {
  return shape.head_size == 64 ? kernel_of<64>(type) : kernel_of<32>(type);
}

}  // namespace

int persistent_blocks(const ModelShape& shape, KvType type) {
  return resident_blocks(kernel_of(shape, type), kPersistentThreads, shared_bytes(shape),
                         kPersistentBlocks);
}

void persistent_step(Stream stream, const ModelShape& shape, KvType type,
                     const PersistentStep& step) {
  const int blocks = persistent_blocks(shape, type);
  if (blocks == 0) return note_failure("a persistent step: its blocks cannot all be alive at once");
  if (step.rows_max > kPersistentRowsMax) return note_failure("a persistent step of too many rows");
  launch_cooperative(stream, kernel_of(shape, type), blocks, kPersistentThreads,
                     shared_bytes(shape), step);
}

}  // namespace pelton::cuda
