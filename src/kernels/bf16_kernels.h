// The arithmetic in which models are trained and published, as a measure of how much precision one
// needs: `inner`'s, with what its operations hand on rounded to bf16: embedding, norms, products
// (what they are multiplied with has been rounded before), rotated queries and keys, attention's
// result, experts' weights and sum, and the residual stream after each block. Not rounded, so that
// this loses a little less than PyTorch does: what is inside of attention and of an expert, the
// cache (as `inner` keeps it), cosines and sines, and the head's logits, whose ties in bf16 would
// pass for other tokens. Slow: it copies. Of the thread that calls `inner`.
#pragma once

#include <memory>

#include "kernels/kernels.h"

namespace pelton::kernels {

// Products with `vocab` rows are the head's. `inner` outlives the result.
std::unique_ptr<Kernels> make_bf16_kernels(Kernels& inner, int vocab);

}  // namespace pelton::kernels
