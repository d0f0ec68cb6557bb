// Kernels of rows (rows.h): a block for each, or a warp; the grouping of what the router chose; and
// numbers of a seed.
#pragma once

#include "cuda/device/rows.h"

namespace pelton::cuda {

PELTON_KERNEL(kRowThreads) embed_kernel(Embed args) {
  launch_dependents();
  if (block_x() < *args.live) embed_row(args, block_x());
}

PELTON_KERNEL(kRowThreads) norm_kernel(Norm args) {
  launch_dependents();
  wait_for_predecessors();
  if (block_x() < *args.live) norm_row(args, block_x(), shared_memory<float>());
}

inline constexpr int kChooseThreads = 128;

PELTON_KERNEL(kChooseThreads) choose_kernel(Choose args) {
  launch_dependents();
  wait_for_predecessors();
  const int row = block_x() * (kChooseThreads / 32) + thread_index() / 32;
  if (row < *args.live) choose_of_row(args, row);
}

inline constexpr int kGroupThreads = 1024;

struct GroupShared {
  int count[kExpertsMax];
  int first[kExpertsMax];
  int first_tile[kExpertsMax];
};

// One block. Each warp goes over all entries for each of its experts, twice: to count, to write.
PELTON_KERNEL(kGroupThreads) group_kernel(Group args) {
  launch_dependents();
  wait_for_predecessors();
  GroupShared& shared = *shared_memory<GroupShared>();
  const int lane = thread_index() % 32;
  const int warp = thread_index() / 32;
  const int entries = *args.live * args.k;
  const uint32_t lanes_before = (uint32_t{1} << lane) - 1;
  for (int e = warp; e < args.experts; e += kGroupThreads / 32) {
    int count = 0;
    for (int i = 0; i < entries; i += 32) {
      const bool is_mine = i + lane < entries && args.choices[i + lane] == e;
      count += count_bits(vote(is_mine));
    }
    if (lane == 0) shared.count[e] = count;
  }
  sync_block();
  if (thread_index() == 0) {
    int first = 0;
    int tile = 0;
    for (int e = 0; e < args.experts; ++e) {
      shared.first[e] = first;
      shared.first_tile[e] = tile;
      first += shared.count[e];
      tile += (shared.count[e] + args.columns - 1) / args.columns;
    }
    *args.tile_count = tile;
  }
  sync_block();
  for (int e = warp; e < args.experts; e += kGroupThreads / 32) {
    const int count = shared.count[e];
    const int first = shared.first[e];
    for (int i = lane; i * args.columns < count; i += 32) {
      const int left = count - i * args.columns;
      args.tiles[shared.first_tile[e] + i] = {e, first + i * args.columns,
                                              left < args.columns ? left : args.columns};
    }
    int written = 0;
    for (int i = 0; i < entries; i += 32) {
      const bool is_mine = i + lane < entries && args.choices[i + lane] == e;
      const uint32_t mine = vote(is_mine);
      if (is_mine) args.entries[first + written + count_bits(mine & lanes_before)] = i + lane;
      written += count_bits(mine);
    }
  }
}

PELTON_DEVICE uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

PELTON_KERNEL(kRowThreads) randomize_kernel(Randomize args, int64_t stride) {
  for (int64_t i = int64_t{block_x()} * kRowThreads + thread_index(); i < args.count; i += stride) {
    const uint64_t bits = mix(args.seed + static_cast<uint64_t>(i));
    const float uniform = static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
    switch (args.kind) {
      case RandomKind::kBits:
        static_cast<uint32_t*>(args.data)[i] = static_cast<uint32_t>(bits);
        break;
      case RandomKind::kBf16:
        static_cast<Bf16Bits*>(args.data)[i] = to_bf16(uniform * args.scale);
        break;
      case RandomKind::kFloat:
        static_cast<float*>(args.data)[i] = uniform * args.scale;
        break;
      case RandomKind::kScales:
        static_cast<uint8_t*>(args.data)[i] = static_cast<uint8_t>(118 + (bits & 3));
        break;
    }
  }
}

}  // namespace pelton::cuda
