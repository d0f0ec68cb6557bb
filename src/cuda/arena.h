// Where everything stands in a device's memory: one allocation, laid out from a model's shape and
// the limits of a step alone. Host and device library compute it from the same source. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/operations.h"

namespace pelton::cuda {

inline constexpr int kLayersMax = 256;
inline constexpr int kKvGroupsMax = 2;  // of layers that keep keys and values of the same tokens

struct ModelShape {
  int32_t layers;
  int32_t hidden;
  int32_t inner;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_size;
  int32_t experts;
  int32_t choices;  // experts of a token
  int32_t vocab;
  int32_t kv_groups = 1;          // that the layers form, kKvGroupsMax at most
  int32_t windows[kKvGroupsMax];  // by group: the tokens that a row sees; 0: all before it
  float epsilon;
  float attention_scale;
  float swiglu_alpha;
  float swiglu_limit;
  uint8_t group_of_layer[kLayersMax];

  int qkv_rows() const { return (heads + 2 * kv_heads) * head_size; }
  int attention_columns() const { return heads * head_size; }
};

struct Limits {
  int32_t rows_max;       // of a step
  int32_t sequences_max;  // of a step
  int32_t logit_rows_max;
  int32_t positions_max;            // of a sequence
  int32_t kv_blocks[kKvGroupsMax];  // by group: in the cache of each of its layers
  KvType kv_type = KvType::kF16;
  int64_t partial_bytes_max;  // for attention that several warps share
};

struct Place {
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct LayerPlaces {
  Place attention_norm;  // float (hidden)
  Place qkv;             // bf16 tiles, RowOrder::kHeads
  Place qkv_bias;
  Place sinks;
  Place o;
  Place o_bias;
  Place expert_norm;
  Place router;
  Place router_bias;
  Place gate_up;  // MXFP4 tiles, RowOrder::kGateUp
  Place gate_up_scales;
  Place gate_up_bias;  // float (experts, 2 inner): gate's, then up's
  Place down;
  Place down_scales;
  Place down_bias;
  Place kv;
};

struct ArenaLayout {
  Place embedding;  // bf16 (vocab, hidden)
  Place head;       // bf16 tiles
  Place norm;       // float (hidden)
  Place turns;      // float (positions, head_size)
  std::vector<LayerPlaces> layers;

  // Working memory of a step.
  Place x;           // float (rows, hidden): the residual stream
  Place normed;      // bf16 (rows, padded hidden)
  Place normed_low;  // the same
  Place q;           // float16 or bf16 (rows, heads, head_size)
  Place kv_staged;   // of fp8: float (rows, 2 kv_heads, head_size)
  Place attended;    // bf16 (rows, padded heads * head_size)
  Place partials;
  Place router_logits;
  Place choices;
  Place choice_weights;
  Place entries;
  Place expert_tiles;
  Place expert_tile_count;
  Place h;  // bf16 (rows * choices, padded inner)
  Place y;  // float (rows * choices, hidden)
  Place head_input;
  Place logits;
  Place plan;               // step_arrays.h
  Place persistent_layers;  // PersistentLayer (layers)

  // Drawing tokens (row_sampling.h): what comes from the host, what launches leave for each other,
  // what goes back.
  Place sampling_rows;  // int32 (4): rows, vocab; then RowSampling (rows)
  Place sampling_edits;
  Place sampling_masks;  // uint64 (rows, vocab / 64)
  Place edited_before;   // float (edits)
  Place sample_states;
  Place sample_buckets;
  Place slice_masses;
  Place slice_equals;
  Place sampled;  // SampledRow (rows), then ReportedToken (rows, kReportedMax)

  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t bytes() const { return weight_bytes + kv_bytes + workspace_bytes; }
};

ArenaLayout arena_layout(const ModelShape& shape, const Limits& limits);

// Of one block in one layer.
int64_t kv_block_bytes(const ModelShape& shape, KvType type);

}  // namespace pelton::cuda
