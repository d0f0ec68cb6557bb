// The arithmetic in which models are trained and published, as a measure of how much precision one
// needs: `inner`'s, with every activation that a step hands on rounded to bf16 (embedding, residual
// stream, what matrices are multiplied with and what comes out, attention's queries, keys, values
// and result). What `experts` and `attention` keep to themselves stays as `inner` has it, so this
// loses a little less than PyTorch does. Slow: it copies. Owned by the caller's thread, as `inner`.
#pragma once

#include <memory>

#include "kernels/kernels.h"

namespace pelton::kernels {

// `inner` outlives the result.
std::unique_ptr<Kernels> make_bf16_kernels(Kernels& inner);

}  // namespace pelton::kernels
