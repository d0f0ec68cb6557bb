// A router's scores to experts and weights, in double precision: what all kernels do alike, but for
// kSoftmaxOfTopK, which each computes with its own exponential. Compiled for any processor. Pure.
//
// kSigmoid with groups (DeepSeek V3, arXiv 2412.19437, section 2.1.2), small: six experts in three
// groups, of which one is kept by the sum of its two best; k = 2, normalises, scale 2.5.
//   logits        3 -9 | 2 2 | 1 1
//   scores        0.953 0.000 | 0.881 0.881 | 0.731 0.731
//   group sums    0.953, 1.762, 1.462: the second is kept
//   choices       2 and 3, the lower among equals first, 0.881 / 1.762 * 2.5 = 1.25 each
// With a correction of 1 for expert 4 the group sums are 0.953, 1.762 and 2.462: the choices are 4
// and 5. A correction counts for the choice alone: both have the weight 0.731 / 1.462 * 2.5 = 1.25.
#pragma once

#include "kernels/kernels.h"

namespace pelton::kernels {

inline constexpr int kRoutedExpertsMax = 4096;

// One token's choices, (shape.k); logits: (shape.experts). Kinds kSoftmax and kSigmoid.
void route_token(ExpertChoice* choices, const float* logits, const RouterShape& shape);

}  // namespace pelton::kernels
