// A step plan laid flat, as models take it. Rows of logits are named by their sequence, so that one
// may have several. Pure; executor thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/step_plan.h"
#include "executor/slot_table.h"
#include "models/forward.h"

namespace pelton::executor {

struct Batch {
  models::ForwardInput input;           // its block tables lie in the slots
  std::vector<size_t> logit_sequences;  // by row of logits: the index of its sequence in the plan
};

// Guesses by the row of the plan that they stand behind; without rows: none.
struct Drafts {
  std::vector<TokenId> tokens;
  std::vector<engine::Slice> rows;
  struct Origin {
    bool is_predicted = false;  // they are the caller's
    uint8_t part = 0;           // of the proposer: who guessed
  };
  std::vector<Origin> origins;  // by row

  std::span<const TokenId> of(size_t row) const {
    return rows.empty() ? std::span<const TokenId>() : rows[row].of(tokens);
  }
};

// `slots` has applied the plan. An example of two slots, the first decoding behind token 9, the
// second in the midst of its prompt:
//
//   plan    {slot 0, start 7, tokens {}, sample}  {slot 1, start 16, tokens {4, 5, 6}}
//   batch   tokens 9 4 5 6 | sequences (7, 1) (16, 3) | logit_rows 0 | logit_sequences 0
//
// With the guesses 7 and 8 behind the first:
//
//   batch   tokens 9 7 8 4 5 6 | sequences (7, 3) (16, 3) | logit_rows 0 1 2 | logit_sequences 0 0
//   0
Batch build_batch(const engine::StepPlan& plan, const SlotTable& slots, const Drafts& drafts,
                  int group_count);

// By sequence of the plan: the row of the step that its first token has. The rows of guesses lie
// between those of sequences; whoever reads rows of a step counts them here. In the example: 0 3.
std::vector<int> first_rows(const engine::StepPlan& plan, const Drafts& drafts);

}  // namespace pelton::executor
