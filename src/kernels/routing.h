// A router's scores to experts and weights, in double precision: what all kernels do alike, but for
// kSoftmaxOfTopK, which each computes with its own exponential. Compiled for any processor. Pure.
#pragma once

#include "kernels/kernels.h"

namespace pelton::kernels {

inline constexpr int kRoutedExpertsMax = 4096;

// One token's choices, (shape.k); logits: (shape.experts). Kinds kSoftmax and kSigmoid.
void route_token(ExpertChoice* choices, const float* logits, const RouterShape& shape);

}  // namespace pelton::kernels
