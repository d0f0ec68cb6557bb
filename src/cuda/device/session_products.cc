// What the operations of a step get: the same for a step, launched or persistent, and for a trial.
#include "cuda/device/session.h"

namespace pelton::cuda {

const int32_t* Session::live(const StepLayout& layout) const {
  return reinterpret_cast<const int32_t*>(at<char>(arena_.plan) + layout.live);
}

Embed Session::embed_of(const StepSizes& sizes, const StepLayout& layout) const {
  return {.x = at<float>(arena_.x),
          .tokens = reinterpret_cast<const int32_t*>(at<char>(arena_.plan) + layout.tokens),
          .table = at<Bf16Bits>(arena_.embedding),
          .live = live(layout),
          .rows_max = sizes.rows,
          .hidden = shape_.hidden,
          .sampled = at<SampledRow>(arena_.sampled)};
}

Weights Session::weights(const Place& data, const Place& bias, int rows, int columns) const {
  return {.data = at<void>(data),
          .bias = bias.bytes > 0 ? at<float>(bias) : nullptr,
          .type = WeightType::kBf16,
          .rows = rows,
          .columns = columns};
}

Qkv Session::qkv_of(int layer, const StepSizes& sizes, const StepLayout& layout) const {
  const LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const int64_t slots = layout.slots[shape_.group_of_layer[layer]];
  char* const plan = at<char>(arena_.plan);
  return {.weights = weights(places.qkv, places.qkv_bias, shape_.qkv_rows(), shape_.hidden),
          .input = {at<Bf16Bits>(arena_.normed), nullptr, live(layout), sizes.rows},
          .q = at<uint16_t>(arena_.q),
          .cache = {at<void>(places.kv), shape_.kv_heads, shape_.head_size, limits_.kv_type},
          .positions = reinterpret_cast<const int32_t*>(plan + layout.positions),
          .slots = reinterpret_cast<const int64_t*>(plan + slots),
          .turns = at<float>(arena_.turns),
          .heads = shape_.heads,
          .staged = limits_.kv_type == KvType::kFp8 ? at<float>(arena_.kv_staged) : nullptr,
          .config = configs_.at(ProductKind::kQkv, sizes.rows)};
}

Linear Session::o_of(int layer, const StepSizes& sizes, const StepLayout& layout) const {
  const LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  return {.weights = weights(places.o, places.o_bias, shape_.hidden, shape_.attention_columns()),
          .input = {at<Bf16Bits>(arena_.attended), nullptr, live(layout), sizes.rows},
          .out = at<float>(arena_.x),
          .stride = shape_.hidden,
          .accumulate = 1,
          .config = configs_.at(ProductKind::kO, sizes.rows)};
}

Linear Session::router_of(int layer, const StepSizes& sizes, const StepLayout& layout) const {
  const LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  return {.weights = weights(places.router, places.router_bias, shape_.experts, shape_.hidden),
          .input = {at<Bf16Bits>(arena_.normed), at<Bf16Bits>(arena_.normed_low), live(layout),
                    sizes.rows},
          .out = at<float>(arena_.router_logits),
          .stride = shape_.experts,
          .accumulate = 0,
          .config = configs_.at(ProductKind::kRouter, sizes.rows)};
}

Linear Session::head_of(const StepSizes& sizes, const StepLayout& layout) const {
  return {.weights = weights(arena_.head, {}, shape_.vocab, shape_.hidden),
          .input = {at<Bf16Bits>(arena_.head_input), nullptr, live(layout) + 1, sizes.logit_rows},
          .out = at<float>(arena_.logits),
          .stride = shape_.vocab,
          .accumulate = 0,
          .config = configs_.at(ProductKind::kHead, sizes.logit_rows)};
}

Group Session::group_of(const StepSizes& sizes, const StepLayout& layout, int columns) const {
  return {.choices = at<int32_t>(arena_.choices),
          .entries = at<int32_t>(arena_.entries),
          .tiles = at<ExpertTile>(arena_.expert_tiles),
          .tile_count = at<int32_t>(arena_.expert_tile_count),
          .live = live(layout),
          .rows_max = sizes.rows,
          .experts = shape_.experts,
          .k = shape_.choices,
          .columns = columns};
}

Grouping Session::grouping_of(const StepSizes& sizes, int columns) const {
  return {.tile_count = at<int32_t>(arena_.expert_tile_count),
          .tiles = at<ExpertTile>(arena_.expert_tiles),
          .entries = at<int32_t>(arena_.entries),
          .tiles_max = expert_tiles_max(sizes.rows * shape_.choices, shape_.experts, columns),
          .columns = columns,
          .choices = shape_.choices};
}

Weights Session::expert_weights(ProductKind kind, int layer) const {
  const LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const Factors& factors = factors_[static_cast<size_t>(layer)];
  const bool is_down = kind == ProductKind::kDown;
  const ProductShape product = product_shape(shape_, kind);
  return {.data = at<void>(is_down ? places.down : places.gate_up),
          .scales = at<uint32_t>(is_down ? places.down_scales : places.gate_up_scales),
          .bias = at<float>(is_down ? places.down_bias : places.gate_up_bias),
          .type = WeightType::kMxfp4,
          .rows = product.rows,
          .columns = product.columns,
          .experts = shape_.experts,
          .factor = is_down ? factors.down : factors.gate_up};
}

GateUp Session::gate_up_of(int layer, const StepSizes& sizes, const KernelConfig& config) const {
  return {.weights = expert_weights(ProductKind::kGateUp, layer),
          .x = at<Bf16Bits>(arena_.normed),
          .h = at<Bf16Bits>(arena_.h),
          .grouping = grouping_of(sizes, config.columns),
          .alpha = shape_.swiglu_alpha,
          .limit = shape_.swiglu_limit,
          .config = config};
}

Down Session::down_of(int layer, const StepSizes& sizes, const KernelConfig& config) const {
  return {.weights = expert_weights(ProductKind::kDown, layer),
          .h = at<Bf16Bits>(arena_.h),
          .y = at<float>(arena_.y),
          .grouping = grouping_of(sizes, config.columns),
          .config = config};
}

}  // namespace pelton::cuda
