// Log-probabilities of prompt tokens. Every row's logits are needed: as many at a time as a step
// may sample, so that no memory is needed beside what decoding has. Executor thread, with its
// workers.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/step_plan.h"
#include "executor/slot_table.h"
#include "executor/step_model.h"
#include "sampling/sampler.h"

namespace pelton::executor {

struct ScoreContext {
  const SlotTable& slots;
  StepModel& model;
  base::ThreadPool& pool;
  std::span<sampling::Sampler> samplers;  // one a worker
  std::span<const int> first_rows;        // of the plan's sequences, as batch_builder has them
  int vocab_size = 0;                     // of a row of logits
  int sampled_vocab = 0;                  // of these, what counts
};

// Scores the targets of the plan's rows into result.prompt_tokens, over the step's logits, which
// are done with by now. What has no number fails its sequence.
void score_prompts(const engine::StepPlan& plan, const ScoreContext& context,
                   engine::StepResult& result);

}  // namespace pelton::executor
