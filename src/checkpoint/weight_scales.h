// How large random weights are, so that a made-up model behaves like a model: residual stream and
// logits finite and of sane size, scores neither flat nor saturated, experts chosen evenly. Pure.
//
// With x^ the normalised residual (rms 1):
//   q, k        rms about 1 with biases: scores' deviation about 1.9 behind YaRN's factor
//   sinks       N(4, 2.5): from negligible to dominant, by head and context length
//   gate, up    deviation 3, bias 0.5: 1 to 2 % of the values reach the clamps at +-7
//   down        each expert's output has rms about 1; o_proj's about 0.6
//   lm_head     logits' deviation 2.5: an entropy of about log(vocab) - 3
#pragma once

#include <cstdint>
#include <string_view>

#include "families/model_config.h"

namespace pelton::checkpoint {

struct Normal {
  double deviation;
  double mean;
};

// Of a bf16 tensor with that name (every one that a checkpoint holds; CHECKed).
Normal weight_distribution(const families::ModelConfig& config, std::string_view name);

// Nibbles of MXFP4 blocks are uniform, so the scales set the deviation: `exponent` (biased by 127)
// or one more, the latter for this share of the blocks.
struct Mxfp4Scale {
  int exponent;
  double share_of_next;
};
Mxfp4Scale mxfp4_scale(const families::ModelConfig& config, std::string_view name);

}  // namespace pelton::checkpoint
