// Steps of few rows in one launch (persistent.h), where the configs say so.
#include <vector>

#include "cuda/device/operations.h"
#include "cuda/device/session.h"

namespace pelton::cuda {

bool Session::is_persistent(const StepSizes& sizes) const {
  return sizes.rows <= kPersistentRowsMax && configs_.persistent[row_bucket(sizes.rows)] != 0;
}

// What does not change from step to step, in the device's memory. Nothing may be being recorded.
void Session::provide_layers() {
  if (layers_are_there_) return;
  std::vector<PersistentLayer> layers;
  for (int i = 0; i < shape_.layers; ++i) {
    const LayerPlaces& places = arena_.layers[static_cast<size_t>(i)];
    layers.push_back(
        {.attention_norm = at<float>(places.attention_norm),
         .expert_norm = at<float>(places.expert_norm),
         .sinks = at<float>(places.sinks),
         .qkv = weights(places.qkv, places.qkv_bias, shape_.qkv_rows(), shape_.hidden),
         .o = weights(places.o, places.o_bias, shape_.hidden, shape_.attention_columns()),
         .router = weights(places.router, places.router_bias, shape_.experts, shape_.hidden),
         .gate_up = expert_weights(ProductKind::kGateUp, i),
         .down = expert_weights(ProductKind::kDown, i),
         .cache = {at<void>(places.kv), shape_.kv_heads, shape_.head_size, limits_.kv_type},
         .kv_group = shape_.group_of_layer[i]});
  }
  write(arena_.persistent_layers.offset, layers.data(), arena_.persistent_layers.bytes);
  layers_are_there_ = true;
}

void Session::forward_persistent(const StepSizes& sizes, const StepLayout& layout) {
  char* const plan = at<char>(arena_.plan);
  const auto numbers = [&](int64_t offset) {
    return reinterpret_cast<const int32_t*>(plan + offset);
  };
  PersistentStep step{
      .layers = at<PersistentLayer>(arena_.persistent_layers),
      .layer_count = shape_.layers,
      .rows_max = sizes.rows,
      .arrivals = reinterpret_cast<uint32_t*>(plan + layout.arrivals),
      .live = live(layout),
      .embed = embed_of(sizes, layout),
      .positions = numbers(layout.positions),
      .tables = numbers(layout.tables),
      .partial_rows = numbers(layout.partial_rows),
      .logit_rows = numbers(layout.logit_rows),
      .attention = {},
      .turns = at<float>(arena_.turns),
      .heads = shape_.heads,
      .experts = shape_.experts,
      .choices = shape_.choices,
      .hidden = shape_.hidden,
      .epsilon = shape_.epsilon,
      .attention_scale = shape_.attention_scale,
      .alpha = shape_.swiglu_alpha,
      .limit = shape_.swiglu_limit,
      .x = at<float>(arena_.x),
      .normed = at<Bf16Bits>(arena_.normed),
      .q = at<uint16_t>(arena_.q),
      .staged = limits_.kv_type == KvType::kFp8 ? at<float>(arena_.kv_staged) : nullptr,
      .attended = at<Bf16Bits>(arena_.attended),
      .partials = at<float>(arena_.partials),
      .router_logits = at<float>(arena_.router_logits),
      .h = at<Bf16Bits>(arena_.h),
      .y = at<float>(arena_.y),
      .norm = at<float>(arena_.norm),
      .head = weights(arena_.head, {}, shape_.vocab, shape_.hidden),
      .logit_rows_max = sizes.logit_rows,
      .logits = at<float>(arena_.logits)};
  for (int group = 0; group < shape_.kv_groups; ++group) {
    const int32_t window = shape_.windows[group];
    step.attention[group] = {
        .slots = reinterpret_cast<const int64_t*>(plan + layout.slots[group]),
        .items = reinterpret_cast<const AttentionItem*>(plan + layout.items[group]),
        .items_max = sizes.items[group],
        .spans_max = window == 0 ? sizes.spans : 0,
        .window = window};
  }
  persistent_step(stream_, shape_, limits_.kv_type, step);
}

}  // namespace pelton::cuda
