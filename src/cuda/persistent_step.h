// What a persistent step gets (device/persistent.h): one launch that computes a whole step of few
// rows. Plain data; addresses are the device's.
#pragma once

#include <cstdint>

#include "cuda/arena.h"
#include "cuda/operations.h"

namespace pelton::cuda {

// Steps of more rows are launched kernel by kernel. More would need another config of product (a
// column tile has 8), and gain less: launches cost the same for any number of rows.
inline constexpr int kPersistentRowsMax = 8;

// What a warp that ends a phase asks for of the next product's weights, a multiple of 16: 128 KB of
// a block, 17 MB of 132 blocks on an H100, whose L2 cache has 50 MB. Never measured.
inline constexpr int kPrefetchBytes = 16 << 10;

// Of a layer; a table of them lies in the device's memory (ArenaLayout::persistent_layers).
struct PersistentLayer {
  const float* attention_norm;
  const float* expert_norm;
  const float* sinks;
  Weights qkv;
  Weights o;
  Weights router;
  Weights gate_up;
  Weights down;
  KvCache cache;
  int32_t kv_group;
};

// What attention of a KV group's layers gets.
struct PersistentAttention {
  const int64_t* slots;
  const AttentionItem* items;
  int32_t items_max;
  int32_t spans_max;  // 0: no row is divided
  int32_t window;
};

struct PersistentStep {
  const PersistentLayer* layers;
  int32_t layer_count;
  int32_t rows_max;
  uint32_t* arrivals;   // blocks that came to the grid's barriers: zero when the step begins
  const int32_t* live;  // rows, rows of logits
  Embed embed;
  const int32_t* positions;
  const int32_t* tables;
  const int32_t* partial_rows;
  const int32_t* logit_rows;
  PersistentAttention attention[kKvGroupsMax];
  const float* turns;
  int32_t heads;
  int32_t experts;
  int32_t choices;
  int32_t hidden;
  float epsilon;
  float attention_scale;
  float alpha;
  float limit;

  // Working memory, as the launched kernels use it.
  float* x;
  Bf16Bits* normed;
  uint16_t* q;
  float* staged;  // of fp8
  Bf16Bits* attended;
  float* partials;
  float* router_logits;
  Bf16Bits* h;
  float* y;

  const float* norm;
  Weights head;
  int32_t logit_rows_max;  // 0: no logits are wanted
  float* logits;
};

}  // namespace pelton::cuda
