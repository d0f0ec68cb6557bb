// Attention over paged keys and values on tensor cores. A warp takes up to 16 (token, head) pairs
// that share a kv head and one sequence, as the rows of its products; its heads' queries therefore
// read a key once.
//
// The keys are cut into spans of 128 positions, counted from 0: each span's softmax is computed
// apart and the spans are merged one after the other, the sink last and once. A warp may do this
// for all spans of its rows, or several warps for a span each and merge_kernel after them: the same
// operations in the same order, and so the same bits (docs/decisions/0004).
#pragma once

#include "cuda/device/gpu.h"
#include "cuda/device/kv_block.h"
#include "cuda/operations.h"

namespace pelton::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kSpanBlocks = kSpanTokens / kBlockTokens;
inline constexpr float kLog2E = 1.44269504f;

// The first position that a query at `position` sees.
PELTON_DEVICE int first_seen(int position, int window) {
  const int first = position - window + 1;
  return window == 0 || first < 0 ? 0 : first;
}

// What has been seen so far of a row: sums of 2^(score - highest), and of values weighted so.
struct Softmax {
  float highest;
  float sum;
};

// The factors that the old and the new sums get when `with` joins.
struct MergeFactors {
  float before;
  float with;
};
PELTON_DEVICE MergeFactors merge(Softmax& so_far, const Softmax& with) {
  const float highest = maximum(so_far.highest, with.highest);
  if (highest == minus_infinity()) return {1, 0};
  const MergeFactors factors = {power_of_2(so_far.highest - highest),
                                power_of_2(with.highest - highest)};
  so_far.sum = fused(so_far.sum, factors.before, with.sum * factors.with);
  so_far.highest = highest;
  return factors;
}
PELTON_DEVICE float merged(float before, float with, const MergeFactors& factors) {
  return fused(before, factors.before, with * factors.with);
}
// What all values are multiplied with at the end.
PELTON_DEVICE float final_factor(Softmax so_far, float sink) {
  const MergeFactors factors = merge(so_far, {sink * kLog2E, 1});
  return factors.before / so_far.sum;
}

// The rows g ("low") and g + 8 ("high") of a lane.
struct QueryRow {
  int64_t row;  // of the step; negative: none
  int head;
  int position;
};

template <int kHead, KvType kType>
PELTON_DEVICE void load_query(uint32_t (&query)[kHead / 16][4], const Attention& args,
                              const QueryRow (&rows)[2], int t) {
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    if (rows[high].row >= 0) {
      const uint16_t* from = args.q + (rows[high].row * args.heads + rows[high].head) * kHead;
      KvBlock<kHead, kType>::load_query(query, from, high, t);
    } else {
#pragma unroll
      for (int k = 0; k < kHead / 16; ++k) query[k][high] = query[k][2 + high] = 0;
    }
  }
}

// One warp's work on one span.
template <int kHead>
struct Span {
  float scores[kSpanBlocks][2][4];
  float values[kHead / 8][4];
  Softmax softmax[2];
};

template <int kHead, KvType kType>
PELTON_DEVICE void attend_span(Span<kHead>& span, const Attention& args, const AttentionItem& item,
                               const QueryRow (&rows)[2], const uint32_t (&query)[kHead / 16][4],
                               int kv_head, int index, int lane) {
  const int t = lane % 4;
  const int last = item.start + item.row_count - 1;
  const int first = first_seen(item.start, args.window);
  const auto block_at = [&](int position) {
    return KvBlock<kHead, kType>(args, args.tables[item.table + position / kBlockTokens], kv_head);
  };
  const auto is_seen = [&](int b) {
    const int begin = index * kSpanTokens + b * kBlockTokens;
    return begin <= last && begin + kBlockTokens > first;
  };

#pragma unroll
  for (int b = 0; b < kSpanBlocks; ++b) {
    const int begin = index * kSpanTokens + b * kBlockTokens;
    KeyFactors factors = {};
    if (is_seen(b)) {
      const KvBlock<kHead, kType> block = block_at(begin);
      block.score(span.scores[b], query, lane);
      factors = block.key_factors(args.scale * kLog2E, t);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const QueryRow& row = rows[i / 2];
        const int key = begin + 4 * t + 2 * h + i % 2;
        const bool is_visible =
            is_seen(b) && key <= row.position && key >= first_seen(row.position, args.window);
        span.scores[b][h][i] =
            is_visible ? span.scores[b][h][i] * factors.of[h][i % 2] : minus_infinity();
      }
    }
  }

  // Weights of the values, and their sums.
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    float highest = minus_infinity();
#pragma unroll
    for (int b = 0; b < kSpanBlocks; ++b) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        highest =
            maximum(highest, maximum(span.scores[b][h][2 * high], span.scores[b][h][2 * high + 1]));
      }
    }
    highest = maximum(highest, shuffle_xor(highest, 1));
    highest = maximum(highest, shuffle_xor(highest, 2));
    const float base = highest == minus_infinity() ? 0 : highest;
    float sum = 0;
#pragma unroll
    for (int b = 0; b < kSpanBlocks; ++b) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = span.scores[b][h][2 * high + i];
          score = KvBlock<kHead, kType>::weight(power_of_2(score - base));
          sum += score;
        }
      }
    }
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    span.softmax[high] = {highest, sum};
  }

#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) span.values[n][i] = 0;
  }
#pragma unroll
  for (int b = 0; b < kSpanBlocks; ++b) {
    if (!is_seen(b)) continue;
    const int begin = index * kSpanTokens + b * kBlockTokens;
    block_at(begin).add_values(span.values, span.scores[b], last - begin - 4 * t + 1, lane);
  }
}

// Where the span's part of a row lies: its number counts from the first span that the row sees.
template <int kHead>
PELTON_DEVICE float* partial_at(const Attention& args, int64_t partial, int head, int position,
                                int span) {
  const int number = span - first_seen(position, args.window) / kSpanTokens;
  return args.partials + ((partial * args.heads + head) * args.spans_max + number) * (kHead + 2);
}

// What a warp does.
template <int kHead, KvType kType>
PELTON_DEVICE void attend_item(const Attention& args, int index, int kv_head) {
  const AttentionItem item = args.items[index];
  if (item.row_count == 0) return;
  const int lane = thread_index() % 32;
  const int group = args.heads / args.cache.kv_heads;
  QueryRow rows[2];
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    const int pair = lane / 4 + 8 * high;
    const int token = pair / group;
    const bool is_there = token < item.row_count;
    rows[high] = {is_there ? int64_t{item.first_row} + token : -1, kv_head * group + pair % group,
                  item.start + (is_there ? token : 0)};
  }
  uint32_t query[kHead / 16][4];
  load_query<kHead, kType>(query, args, rows, lane % 4);

  Softmax softmax[2] = {{minus_infinity(), 0}, {minus_infinity(), 0}};
  float values[kHead / 8][4];
#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[n][i] = 0;
  }
  for (int s = item.span_begin; s < item.span_end; ++s) {
    Span<kHead> span;
    attend_span<kHead, kType>(span, args, item, rows, query, kv_head, s, lane);
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      if (item.partial >= 0) {
        if (rows[high].row < 0) continue;
        float* to = partial_at<kHead>(args, item.partial, rows[high].head, rows[high].position, s);
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          to[8 * n + lane % 4 * 2] = span.values[n][2 * high];
          to[8 * n + lane % 4 * 2 + 1] = span.values[n][2 * high + 1];
        }
        if (lane % 4 == 0) {
          to[kHead] = span.softmax[high].highest;
          to[kHead + 1] = span.softmax[high].sum;
        }
      } else {
        const MergeFactors factors = merge(softmax[high], span.softmax[high]);
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
          for (int i = 2 * high; i < 2 * high + 2; ++i) {
            values[n][i] = merged(values[n][i], span.values[n][i], factors);
          }
        }
      }
    }
  }
  if (item.partial >= 0) return;
  const int64_t stride = padded_columns(args.heads * kHead);
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    if (rows[high].row < 0) continue;
    const float factor = final_factor(softmax[high], args.sinks[rows[high].head]);
    Bf16Bits* to = args.out + rows[high].row * stride + rows[high].head * kHead;
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      *reinterpret_cast<uint32_t*>(to + 8 * n + lane % 4 * 2) =
          pack_bf16(values[n][2 * high] * factor, values[n][2 * high + 1] * factor);
    }
  }
}

// grid: (items / 4, kv_heads)
template <int kHead, KvType kType>
PELTON_KERNEL(kAttentionThreads)
attention_kernel(Attention args) {
  launch_dependents();
  wait_for_predecessors();
  const int index = block_x() * (kAttentionThreads / 32) + thread_index() / 32;
  if (index < args.items_max) attend_item<kHead, kType>(args, index, block_y());
}

// A warp merges one head of one row, if its spans lie apart.
template <int kHead>
PELTON_DEVICE void merge_head(const Attention& args, int row, int head) {
  if (args.partial_rows[row] < 0) return;
  constexpr int kAtOnce = 8;  // spans on their way from memory together
  constexpr int kPart = kHead / 32;
  const int lane = thread_index() % 32;
  const int position = args.positions[row];
  const int first = first_seen(position, args.window) / kSpanTokens;
  const int count = position / kSpanTokens - first + 1;
  const float* from = partial_at<kHead>(args, args.partial_rows[row], head, position, first);

  Softmax softmax = {minus_infinity(), 0};
  float values[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) values[i] = 0;
  for (int begin = 0; begin < count; begin += kAtOnce) {
    Softmax part[kAtOnce];
    float part_values[kAtOnce][kPart];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const float* at = from + (begin + s < count ? begin + s : count - 1) * (kHead + 2);
      part[s] = {at[kHead], at[kHead + 1]};
#pragma unroll
      for (int i = 0; i < kPart; ++i) part_values[s][i] = at[32 * i + lane];
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (begin + s >= count) break;
      const MergeFactors factors = merge(softmax, part[s]);
#pragma unroll
      for (int i = 0; i < kPart; ++i) values[i] = merged(values[i], part_values[s][i], factors);
    }
  }
  const float factor = final_factor(softmax, args.sinks[head]);
  Bf16Bits* to = args.out + int64_t{row} * padded_columns(args.heads * kHead) + head * kHead;
#pragma unroll
  for (int i = 0; i < kPart; ++i) to[32 * i + lane] = to_bf16(values[i] * factor);
}

// grid: (rows, heads / 4)
template <int kHead>
PELTON_KERNEL(kAttentionThreads)
merge_kernel(Attention args) {
  launch_dependents();
  wait_for_predecessors();
  const int row = block_x();
  const int head = block_y() * (kAttentionThreads / 32) + thread_index() / 32;
  if (row < *args.live && head < args.heads) merge_head<kHead>(args, row, head);
}

}  // namespace pelton::cuda
