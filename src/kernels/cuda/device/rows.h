// Kernels that work on rows one by one: embedding, norm (with what the experts add), the router's
// choice, and the grouping of what was chosen.
#pragma once

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/operations.h"

namespace pelton::kernels::gpu {

inline constexpr int kRowThreads = 256;

// Here and below: what all threads of a block do for one row; and the kernel, a block for each row.
PELTON_DEVICE void embed_row(const Embed& args, int row) {
  int token = args.tokens[row];
  if (token < 0) token = args.sampled[~token].token;
  if (token < 0) token = 0;
  const Bf16Bits* from = args.table + int64_t{token} * args.hidden;
  float* to = args.x + int64_t{row} * args.hidden;
  for (int i = thread_index(); i < args.hidden; i += kRowThreads) {
    to[i] = low_bf16(uint32_t{from[i]});
  }
}

PELTON_KERNEL(kRowThreads) embed_kernel(Embed args) {
  launch_dependents();
  if (block_x() < *args.live) embed_row(args, block_x());
}

// The sum of all threads' values, added in an order that the number of threads alone says. `room`:
// one float for each warp.
PELTON_DEVICE float block_sum(float value, float* room) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  if (thread_index() % 32 == 0) room[thread_index() / 32] = value;
  sync_block();
  float sum = room[0];
  for (int warp = 1; warp < block_threads() / 32; ++warp) sum += room[warp];
  return sum;
}

PELTON_DEVICE void norm_row(const Norm& args, int index, float* room) {
  const int64_t row = args.rows != nullptr ? args.rows[index] : index;
  float* const x = args.x + row * args.hidden;
  float squares = 0;
  for (int i = thread_index(); i < args.hidden; i += kRowThreads) {
    float value = x[i];
    if (args.y != nullptr) {
      for (int j = 0; j < args.choices; ++j) {
        const int64_t entry = row * args.choices + j;
        value = fused(args.choice_weights[entry], args.y[entry * args.hidden + i], value);
      }
      x[i] = value;
    }
    squares = fused(value, value, squares);
  }
  const float sum = block_sum(squares, room);
  const float scale = inverse_root(sum / static_cast<float>(args.hidden) + args.epsilon);
  const int64_t to = int64_t{index} * padded_columns(args.hidden);
  for (int i = thread_index(); i < args.hidden; i += kRowThreads) {
    const float value = x[i] * scale * args.weight[i];
    const Bf16Bits bits = to_bf16(value);
    args.out[to + i] = bits;
    if (args.low != nullptr) args.low[to + i] = to_bf16(value - low_bf16(uint32_t{bits}));
  }
}

PELTON_KERNEL(kRowThreads) norm_kernel(Norm args) {
  launch_dependents();
  wait_for_predecessors();
  if (block_x() < *args.live) norm_row(args, block_x(), shared_memory<float>());
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

inline constexpr int kChooseThreads = 128;

// A warp takes a row. A broken row (NaN) still chooses experts that exist.
PELTON_DEVICE void choose_of_row(const Choose& args, int row) {
  const int lane = thread_index() % 32;
  const float* const logits = args.logits + int64_t{row} * args.experts;
  int chosen[kChoicesMax];
  float value[kChoicesMax];
  for (int j = 0; j < args.k; ++j) {
    int best = -1;
    float highest = 0;
    for (int e = lane; e < args.experts; e += 32) {
      bool is_taken = false;
      for (int i = 0; i < j; ++i) is_taken = is_taken || chosen[i] == e;
      if (is_taken) continue;
      if (best < 0 || logits[e] > highest) {
        best = e;
        highest = logits[e];
      }
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other_value = shuffle_xor(highest, mask);
      const int other = shuffle_xor(best, mask);
      const bool is_better = other_value > highest || (!(other_value < highest) && other < best);
      if (other >= 0 && (best < 0 || is_better)) {
        best = other;
        highest = other_value;
      }
    }
    chosen[j] = shuffle_from(best, 0);
    value[j] = logits[chosen[j]];
  }
  float total = 0;
  for (int j = 0; j < args.k; ++j) total += exponential(value[j] - value[0]);
  if (lane >= args.k) return;
  float own = 0;
  int expert = 0;
  for (int j = 0; j < args.k; ++j) {
    if (j != lane) continue;
    own = value[j];
    expert = chosen[j];
  }
  args.choices[int64_t{row} * args.k + lane] = expert;
  args.weights[int64_t{row} * args.k + lane] = exponential(own - value[0]) / total;
}

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

}  // namespace pelton::kernels::gpu
