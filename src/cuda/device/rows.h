// What is done with rows one by one: embedding, norm (with what the experts add), the router's
// choice. By all threads of a block for one row, or by a warp.
#pragma once

#include "cuda/device/gpu.h"
#include "cuda/operations.h"

namespace pelton::cuda {

inline constexpr int kRowThreads = 256;

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

}  // namespace pelton::cuda
