// What becomes of a product's results. Each gets, of one column (a row of activations or an entry),
// low and high row g of a tile (weight_tiles.h), in float32.
#pragma once

#include "cuda/device/gpu.h"
#include "cuda/operations.h"

namespace pelton::cuda {

struct LinearEpilogue {
  Linear args;

  PELTON_DEVICE void operator()(int tile, int g, int, int column, float low, float high) const {
    put(kTileRows * tile + g, column, low);
    put(kTileRows * tile + 8 + g, column, high);
  }

  PELTON_DEVICE void put(int row, int column, float value) const {
    if (row >= args.weights.rows) return;
    if (args.weights.bias != nullptr) value += args.weights.bias[row];
    float& to = args.out[int64_t{column} * args.stride + row];
    to = args.accumulate != 0 ? to + value : value;
  }
};

struct QkvEpilogue {
  Qkv args;

  PELTON_DEVICE void operator()(int tile, int g, int, int row, float low, float high) const {
    const int head_size = args.cache.head_size;
    const int half = head_size / 2;
    const int head = tile / (head_size / kTileRows);  // of queries, then of keys, then of values
    const int i = 8 * (tile % (head_size / kTileRows)) + g;
    const float* const bias = args.weights.bias + head * head_size;
    low += bias[i];
    high += bias[i + half];
    if (head < args.heads + args.cache.kv_heads) {
      const float* turn = args.turns + int64_t{args.positions[row]} * head_size;
      const float cosine = turn[i];
      const float sine = turn[half + i];
      const float turned = low * cosine - high * sine;
      high = high * cosine + low * sine;
      low = turned;
    }
    if (head < args.heads) {
      uint16_t* to = args.q + (int64_t{row} * args.heads + head) * head_size;
      to[i] = number(low);
      to[i + half] = number(high);
      return;
    }
    if (args.staged != nullptr) {
      float* to =
          args.staged + (int64_t{row} * 2 * args.cache.kv_heads + head - args.heads) * head_size;
      to[i] = low;
      to[i + half] = high;
      return;
    }
    const int64_t slot = args.slots[row];
    if (slot < 0) return;
    const int kv_head = (head - args.heads) % args.cache.kv_heads;
    const int place = static_cast<int>(slot % kBlockTokens);
    uint16_t* block = static_cast<uint16_t*>(args.cache.data) +
                      (slot / kBlockTokens * args.cache.kv_heads + kv_head) *
                          (int64_t{2} * head_size * kBlockTokens);
    if (head < args.heads + args.cache.kv_heads) {
      block[place * head_size + i] = number(low);
      block[place * head_size + i + half] = number(high);
    } else {
      block += head_size * kBlockTokens;
      block[i * kBlockTokens + place] = number(low);
      block[(i + half) * kBlockTokens + place] = number(high);
    }
  }

  PELTON_DEVICE uint16_t number(float value) const {
    return args.cache.type == KvType::kF16 ? to_f16(value) : to_bf16(value);
  }
};

struct GateUpEpilogue {
  GateUp args;

  PELTON_DEVICE void operator()(int tile, int g, int expert, int entry, float gate,
                                float up) const {
    const int inner = args.weights.rows / 2;
    const int i = 8 * tile + g;
    if (i >= inner) return;
    const float* const bias = args.weights.bias + int64_t{expert} * 2 * inner;
    // Comparisons that NaN fails: it must not become a number here.
    gate += bias[i];
    if (gate > args.limit) gate = args.limit;
    up += bias[inner + i];
    if (up > args.limit) up = args.limit;
    if (up < -args.limit) up = -args.limit;
    const float value = gate / (1 + exponential(-args.alpha * gate)) * (up + 1);
    args.h[int64_t{entry} * padded_columns(inner) + i] = to_bf16(value);
  }
};

struct DownEpilogue {
  Down args;

  PELTON_DEVICE void operator()(int tile, int g, int expert, int entry, float low,
                                float high) const {
    put(kTileRows * tile + g, expert, entry, low);
    put(kTileRows * tile + 8 + g, expert, entry, high);
  }

  PELTON_DEVICE void put(int row, int expert, int entry, float value) const {
    const int rows = args.weights.rows;
    if (row >= rows) return;
    args.y[int64_t{entry} * rows + row] = value + args.weights.bias[int64_t{expert} * rows + row];
  }
};

}  // namespace pelton::cuda
