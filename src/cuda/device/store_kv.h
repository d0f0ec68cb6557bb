// Codes keys and values into an fp8 cache: the same bytes as kernels/kv_quantization.h gives on the
// host.
#pragma once

#include <bit>

#include "cuda/device/gpu.h"
#include "cuda/operations.h"
#include "kernels/kv_quantization.h"

namespace pelton::cuda {

inline constexpr int kStoreThreads = 128;

// A warp takes one head's key or value of a row.
template <int kHead>
PELTON_DEVICE void store_vector(const StoreKv& args, int row, int vector) {
  constexpr int kEach = kHead / 32;
  const int kv_heads = args.cache.kv_heads;
  const int64_t slot = args.slots[row];
  if (slot < 0) return;
  const int lane = thread_index() % 32;
  const float* const from = args.staged + (int64_t{row} * 2 * kv_heads + vector) * kHead;
  float x[kEach];
  int largest = 0;  // the bits of a magnitude: never negative, in the order of what they mean
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    x[i] = from[32 * i + lane];
    const int bits = static_cast<int>(std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
    largest = bits > largest ? bits : largest;
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const int other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  const Bf16Bits scale = kernels::kv_fp8_scale(static_cast<uint32_t>(largest));

  const bool is_value = vector >= kv_heads;
  const int kv_head = is_value ? vector - kv_heads : vector;
  const int place = static_cast<int>(slot % kBlockTokens);
  unsigned char* const keys =
      static_cast<unsigned char*>(args.cache.data) +
      (slot / kBlockTokens * kv_heads + kv_head) * kv_head_bytes(KvType::kFp8, kHead);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int element = 32 * i + lane;
    const int at = is_value ? kHead * kBlockTokens + value_code_place(element, place)
                            : place * kHead + element;
    keys[at] = kernels::quantize_kv_fp8(x[i], low_bf16(uint32_t{scale}));
  }
  if (lane == 0) {
    auto* const scales = reinterpret_cast<Bf16Bits*>(keys + 2 * kHead * kBlockTokens);
    scales[(is_value ? kBlockTokens : 0) + place] = scale;
  }
}

// grid: (rows, 2 kv_heads / 4)
template <int kHead>
PELTON_KERNEL(kStoreThreads)
store_kv_kernel(StoreKv args) {
  launch_dependents();
  wait_for_predecessors();
  const int row = block_x();
  const int vector = block_y() * (kStoreThreads / 32) + thread_index() / 32;
  if (row < *args.live && vector < 2 * args.cache.kv_heads) store_vector<kHead>(args, row, vector);
}

}  // namespace pelton::cuda
