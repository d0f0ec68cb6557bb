#include "cuda/arena.h"

#include "cuda/persistent_step.h"
#include "cuda/step_arrays.h"

namespace pelton::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kBf16 = sizeof(Bf16Bits);

// Places one after the other.
class Allocator {
 public:
  Place take(int64_t bytes) {
    const Place place{at_, bytes};
    at_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  int64_t at() const { return at_; }

 private:
  int64_t at_ = 0;
};

int64_t tile_data_bytes(WeightType type, int rows, int columns) {
  return int64_t{tile_count(rows)} * chunk_count(columns) * chunk_bytes(type);
}
int64_t tile_scale_bytes(int rows, int columns) {
  return int64_t{tile_count(rows)} * chunk_count(columns) * kScaleChunkBytes;
}

LayerPlaces layer_places(const ModelShape& shape, Allocator& next) {
  const int hidden = shape.hidden;
  const int64_t experts = shape.experts;
  LayerPlaces out;
  out.attention_norm = next.take(hidden * kFloat);
  out.qkv = next.take(tile_data_bytes(WeightType::kBf16, shape.qkv_rows(), hidden));
  out.qkv_bias = next.take(shape.qkv_rows() * kFloat);
  out.sinks = next.take(shape.heads * kFloat);
  out.o = next.take(tile_data_bytes(WeightType::kBf16, hidden, shape.attention_columns()));
  out.o_bias = next.take(hidden * kFloat);
  out.expert_norm = next.take(hidden * kFloat);
  out.router = next.take(tile_data_bytes(WeightType::kBf16, shape.experts, hidden));
  out.router_bias = next.take(experts * kFloat);
  out.gate_up = next.take(experts * tile_data_bytes(WeightType::kMxfp4, 2 * shape.inner, hidden));
  out.gate_up_scales = next.take(experts * tile_scale_bytes(2 * shape.inner, hidden));
  out.gate_up_bias = next.take(experts * 2 * shape.inner * kFloat);
  out.down = next.take(experts * tile_data_bytes(WeightType::kMxfp4, hidden, shape.inner));
  out.down_scales = next.take(experts * tile_scale_bytes(hidden, shape.inner));
  out.down_bias = next.take(experts * hidden * kFloat);
  return out;
}

// Of the widest tiles of experts that a plan may choose, the narrowest: they make the most tiles.
constexpr int kNarrowestTile = 8;

void take_sampling(const ModelShape& shape, int64_t rows, Allocator& next, ArenaLayout& out) {
  const int64_t slices = slice_count(shape.vocab);
  out.sampling_rows = next.take(kSamplingHeaderBytes + rows * int64_t{sizeof(RowSampling)});
  out.sampling_edits = next.take(kEditsMax * int64_t{sizeof(LogitEdit)});
  out.sampling_masks = next.take(rows * ((shape.vocab + 63) / 64) * int64_t{sizeof(uint64_t)});
  out.edited_before = next.take(kEditsMax * kFloat);
  out.sample_states = next.take(rows * int64_t{sizeof(SampleState)});
  out.sample_buckets = next.take(rows * 2 * int64_t{sizeof(SampleBuckets)});
  out.slice_masses = next.take(rows * slices * int64_t{sizeof(uint64_t)});
  out.slice_equals = next.take(rows * slices * int64_t{sizeof(uint64_t)});
  out.sampled = next.take(rows * sampled_row_bytes());
}

void take_workspace(const ModelShape& shape, const Limits& limits, Allocator& next,
                    ArenaLayout& out) {
  const int64_t rows = limits.rows_max;
  const int64_t entries = rows * shape.choices;
  const int64_t padded_hidden = padded_columns(shape.hidden);
  out.x = next.take(rows * shape.hidden * kFloat);
  out.normed = next.take(rows * padded_hidden * kBf16);
  out.normed_low = next.take(rows * padded_hidden * kBf16);
  out.q = next.take(rows * shape.attention_columns() * kBf16);
  out.kv_staged = next.take(
      limits.kv_type == KvType::kFp8 ? rows * 2 * shape.kv_heads * shape.head_size * kFloat : 0);
  out.attended = next.take(rows * padded_columns(shape.attention_columns()) * kBf16);
  out.partials = next.take(limits.partial_bytes_max);
  out.router_logits = next.take(rows * shape.experts * kFloat);
  out.choices = next.take(entries * int64_t{sizeof(int32_t)});
  out.choice_weights = next.take(entries * kFloat);
  out.entries = next.take(entries * int64_t{sizeof(int32_t)});
  out.expert_tiles =
      next.take(expert_tiles_max(static_cast<int>(entries), shape.experts, kNarrowestTile) *
                int64_t{sizeof(ExpertTile)});
  out.expert_tile_count = next.take(sizeof(int32_t));
  out.h = next.take(entries * padded_columns(shape.inner) * kBf16);
  out.y = next.take(entries * shape.hidden * kFloat);
  out.head_input = next.take(limits.logit_rows_max * padded_hidden * kBf16);
  out.logits = next.take(int64_t{limits.logit_rows_max} * shape.vocab * kFloat);
  out.plan = next.take(step_bytes_max(shape, limits));
  out.persistent_layers = next.take(shape.layers * int64_t{sizeof(PersistentLayer)});
  take_sampling(shape, limits.logit_rows_max, next, out);
}

}  // namespace

int64_t kv_block_bytes(const ModelShape& shape, KvType type) {
  return shape.kv_heads * kv_head_bytes(type, shape.head_size);
}

ArenaLayout arena_layout(const ModelShape& shape, const Limits& limits) {
  ArenaLayout out;
  Allocator next;
  out.embedding = next.take(int64_t{shape.vocab} * shape.hidden * kBf16);
  out.head = next.take(tile_data_bytes(WeightType::kBf16, shape.vocab, shape.hidden));
  out.norm = next.take(shape.hidden * kFloat);
  out.turns = next.take(int64_t{limits.positions_max} * shape.head_size * kFloat);
  for (int layer = 0; layer < shape.layers; ++layer) {
    out.layers.push_back(layer_places(shape, next));
  }
  out.weight_bytes = next.at();
  for (int layer = 0; layer < shape.layers; ++layer) {
    const int64_t blocks = limits.kv_blocks[shape.group_of_layer[layer]];
    out.layers[static_cast<size_t>(layer)].kv =
        next.take(blocks * kv_block_bytes(shape, limits.kv_type));
  }
  out.kv_bytes = next.at() - out.weight_bytes;
  take_workspace(shape, limits, next, out);
  out.workspace_bytes = next.at() - out.weight_bytes - out.kv_bytes;
  return out;
}

}  // namespace pelton::cuda
