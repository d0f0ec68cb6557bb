// A step plan laid flat, as models take it. Rows of logits are named by their sequence, so that one
// may have several. Pure; executor thread.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/step_plan.h"
#include "executor/slot_table.h"
#include "models/forward.h"

namespace pelton::executor {

struct Batch {
  models::ForwardInput input;           // its block tables lie in the slots
  std::vector<size_t> logit_sequences;  // by row of logits: the index of its sequence in the plan
};

// `slots` has applied the plan. An example of two slots, the first decoding behind token 9, the
// second in the midst of its prompt:
//
//   plan    {slot 0, start 7, tokens {}, sample}  {slot 1, start 16, tokens {4, 5, 6}}
//   batch   tokens 9 4 5 6 | sequences (7, 1) (16, 3) | logit_rows 0 | logit_sequences 0
Batch build_batch(const engine::StepPlan& plan, const SlotTable& slots, int group_count);

}  // namespace pelton::executor
