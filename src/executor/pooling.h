// Embeddings and scores: one state of a prompt, or the mean over all of its states, gathered chunk
// by chunk, and what the model's heads make of it. Owned by the executor; its thread.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/step_plan.h"
#include "executor/slot_table.h"
#include "executor/sparse_head.h"
#include "executor/step_model.h"

namespace pelton::executor {

class Pooling {
 public:
  struct Options {
    int slot_count = 0;
    int embedding_size = 0;
    int label_count = 0;
    bool labels_of_first = false;  // by the first token's state; otherwise the last one's
    std::optional<SparseHead> sparse_head = {};
  };
  explicit Pooling(Options options)
      : options_(std::move(options)), sums_(static_cast<size_t>(options_.slot_count)) {}

  // Of every plan, in order, before pool(): arrivals begin anew.
  void apply(const engine::StepPlan& plan);

  // `first_rows`: of the plan's sequences, as batch_builder has them.
  // Adds the step's states, and puts what is whole into the result, a float each of embedding_size
  // or of the labels asked for. What is not finite fails its own sequence; an error fails the step.
  Result<void> pool(const engine::StepPlan& plan, std::span<const int> first_rows,
                    const SlotTable& slots, StepModel& model, engine::StepResult& result);

 private:
  struct Rows {
    std::vector<int> rows;          // of the step, whose states are wanted
    std::vector<size_t> sequences;  // of each, the index in the plan
  };
  Rows wanted_rows(const engine::StepPlan& plan, std::span<const int> first_rows,
                   const SlotTable& slots) const;
  bool reads_first(request::Pooling kind) const;
  Result<void> finish(const ScheduledRow& row, const Slot& slot, StepModel& model,
                      engine::SequenceResult& given, std::vector<float>& floats);
  // What the model's head makes of the state, if that is asked for.
  Result<void> score(const Slot& slot, StepModel& model, std::vector<float>& state) const;

  const Options options_;
  // By slot. Of a mean: the sum of the states so far, in the order of positions; of all tokens:
  // their states or weights so far; else the state.
  std::vector<std::vector<double>> sums_;
};

}  // namespace pelton::executor
