// Jump-forward decoding: what a grammar leaves no choice about is emitted with the token before it,
// without a pass of its own. Pure; executor thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "engine/step_plan.h"

namespace pelton::executor {

// result.tokens has one token a row of logits, result.sequences says which; puts jumps[row] behind
// the token of each row. sequences[row]: the row's sequence, its index in the result.
//
//   tokens a b c, jumps {} {x y} {}  ->  tokens a b x y c, of the sequences 1, 3 and 1 of them
void insert_jumps(std::span<const size_t> sequences, std::span<const std::vector<TokenId>> jumps,
                  engine::StepResult& result);

}  // namespace pelton::executor
