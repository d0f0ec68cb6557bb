#include "families/kv_groups.h"

namespace pelton::families {

tensor::KvBlockShape kv_block_shape(const ModelConfig& config, int block_tokens) {
  if (config.is_latent()) {
    return {.kv_heads = 1,
            .head_size = config.latent.kv_rank + config.latent.rope_size,
            .block_tokens = block_tokens,
            .latent = true};
  }
  return {.kv_heads = config.kv_head_count,
          .head_size = config.head_size,
          .block_tokens = block_tokens};
}

// Layers of full attention come first, in metrics and memory alike; then those with a window.
// An encoder keeps none: its blocks are numbers, and hold nothing.
KvGroups kv_groups(const ModelConfig& config, const KvFormat& format) {
  KvGroups groups;
  if (config.is_encoder()) {
    groups.of_layer.resize(config.layers.size());
    groups.specs.push_back({.name = "full"});
    groups.layer_block_bytes.push_back(0);
    return groups;
  }
  const int64_t layer_bytes =
      tensor::kv_block_bytes(format.dtype, kv_block_shape(config, format.block_tokens));
  groups.of_layer.resize(config.layers.size());
  for (const bool sliding : {false, true}) {
    int64_t layers = 0;
    for (int layer = 0; layer < config.layer_count(); ++layer) {
      if (config.is_sliding(layer) != sliding) continue;
      groups.of_layer[static_cast<size_t>(layer)] = groups.specs.size();
      ++layers;
    }
    if (layers == 0) continue;
    groups.specs.push_back({.name = sliding ? "window" : "full",
                            .sliding_window = sliding ? config.sliding_window : 0,
                            .block_bytes = layers * layer_bytes});
    groups.layer_block_bytes.push_back(layer_bytes);
  }
  return groups;
}

}  // namespace pelton::families
