// Embeddings: the last state of a prompt, or the mean over all of its states, gathered chunk by
// chunk. Owned by the executor; its thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/step_plan.h"
#include "executor/slot_table.h"
#include "executor/step_model.h"

namespace pelton::executor {

class Pooling {
 public:
  Pooling(int slot_count, int embedding_size)
      : embedding_size_(embedding_size), sums_(static_cast<size_t>(slot_count)) {}

  // Of every plan, in order, before pool(): arrivals begin anew.
  void apply(const engine::StepPlan& plan);

  // Adds the step's states, and puts the embeddings that are whole into the result, a float each of
  // embedding_size. One that is not finite fails its own sequence; an error fails the step.
  Result<void> pool(const engine::StepPlan& plan, const SlotTable& slots, StepModel& model,
                    engine::StepResult& result);

 private:
  struct Rows {
    std::vector<int> rows;          // of the step, whose states are wanted
    std::vector<size_t> sequences;  // of each, the index in the plan
  };
  static Rows wanted_rows(const engine::StepPlan& plan, const SlotTable& slots);
  void finish(const ScheduledRow& row, const Slot& slot, engine::SequenceResult& given,
              std::vector<float>& floats);

  const int embedding_size_;
  // By slot. Of a mean: the sum of the states so far, in the order of positions; else the state.
  std::vector<std::vector<double>> sums_;
};

}  // namespace pelton::executor
