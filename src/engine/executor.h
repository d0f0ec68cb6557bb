// The seam between deciding and doing. Real: executor/local_executor (CPU). Modelled:
// engine/modelled_executor (tests, simulator). Engine thread only; work may run elsewhere.
//
// submit and collect are two verbs so that step n+1 can be planned while step n runs: a plan may
// name "the token the step before sampled in this seat" (PlannedSequence::tokens empty).
#pragma once

#include <cstdint>

#include "engine/step_plan.h"

namespace pelton::engine {

// What the executor has allocated: the scheduler plans within it.
struct ExecutorCapacity {
  int block_tokens = 16;
  int full_block_count = 0;    // blocks of the full-attention group
  int window_block_count = 0;  // blocks of the sliding-window group
  // In the host's memory, for sequences that make room: their blocks are copied out and back
  // instead of computed again. 0: no swapping.
  int host_full_block_count = 0;
  int host_window_block_count = 0;
  int window_tokens = 128;  // a query at p sees keys p-window_tokens+1 .. p
  int sequences_max = 16;   // seats of sequences that sample
  // More seats, for sequences of which an embedding is made: they need no logits, so many short
  // ones fill a step. 0, and embedding_size 0: this executor makes none.
  int pooled_sequences_max = 0;
  int embedding_size = 0;
  int batch_tokens_max = 512;  // tokens in one step
  int context_tokens_max = 0;  // longest sequence, prompt and output
  int vocab_size = INT32_MAX;  // token ids a prompt may hold are below it

  int seat_count() const { return sequences_max + pooled_sequences_max; }
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorCapacity& capacity() const = 0;

  // Starts a step. At most two may be submitted and not collected.
  virtual void submit(StepPlan plan) = 0;

  // Waits for the oldest submitted step.
  virtual StepResult collect() = 0;
};

}  // namespace pelton::engine
