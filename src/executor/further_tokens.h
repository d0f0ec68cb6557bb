// What a sampled row emits behind its first token: guesses that were accepted with what was sampled
// behind them (speculation), and what a grammar leaves no choice about, without a pass of its own
// (jump-forward decoding). Pure; executor thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/step_plan.h"

namespace pelton::executor {

// result.tokens has one token a sampled row, result.sequences says which; puts further[row] behind
// the token of each row, and leaves it empty. sequences[row]: the row's sequence, its index in the
// result.
//
//   tokens a b c, further {} {x y} {}  ->  tokens a b x y c, of the sequences 1, 3 and 1 of them
void insert_further(std::span<const size_t> sequences,
                    std::span<std::vector<engine::SampledToken>> further,
                    engine::StepResult& result);

}  // namespace pelton::executor
