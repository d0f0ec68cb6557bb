// gpt-oss as the device sees it, for tests and benches, which have no checkpoint.
#pragma once

#include "cuda/arena.h"

namespace pelton::cuda {

// 24 layers and 32 experts are gpt-oss-20b, 36 and 128 gpt-oss-120b (their config.json). Even
// layers look at a window.
inline ModelShape gpt_oss_shape(int layers = 24, int experts = 32) {
  ModelShape shape{.layers = layers,
                   .hidden = 2880,
                   .inner = 2880,
                   .heads = 64,
                   .kv_heads = 8,
                   .head_size = 64,
                   .experts = experts,
                   .choices = 4,
                   .vocab = 201088,
                   .kv_groups = 2,
                   .windows = {0, 128},
                   .epsilon = 1e-5f,
                   .attention_scale = 0.125f,
                   .swiglu_alpha = 1.702f,
                   .swiglu_limit = 7.0f};
  for (int i = 0; i < layers; i += 2) shape.group_of_layer[i] = 1;
  return shape;
}

}  // namespace pelton::cuda
