// Asks a proposer what may come next, and keeps what it needs for that: the tokens of the sequence
// in each slot. Without a proposer it does nothing. Owned by the executor; its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/step_plan.h"
#include "executor/batch_builder.h"
#include "executor/row_sampler.h"
#include "speculative/proposer.h"

namespace pelton::executor {

class Drafter {
 public:
  struct Options {
    int slot_count = 0;
    int vocab_size = 0;
    // Whether sequences whose log-probabilities are wanted have guesses, too. Rows with guesses are
    // drawn from on the host: where others are not, the last bit of a log-probability may differ.
    bool drafts_for_logprobs = true;
  };

  // proposer: null, or outlives this.
  Drafter(speculative::Proposer* proposer, const Options& options);

  // Of every plan, in order: arrivals take their slots.
  void apply(const engine::StepPlan& plan);

  // Guesses for the plan's rows, each within what its row may have. A proposer that fails, or that
  // says what is no token, costs its guesses and nothing else.
  Drafts draft(const engine::StepPlan& plan);

  // Of the plan that draft() was last called with: who took how much of result.draft_ns.
  void divide_time(engine::StepResult& result) const;

  // Whether the proposer wants to see what the step computes; the residual stream as
  // models::HiddenTap gives it.
  bool has_taps() const { return proposer_ != nullptr && !proposer_->taps().empty(); }
  void see(int index, const float* x, int rows);

  // What the step has given its sequences.
  void append(const engine::StepResult& result);

  // Behind that: whose rows the proposer has seen, wrong guesses left out.
  void observe(const engine::StepPlan& plan, const Drafts& drafts);

  // Whether the proposer wants what was drawn behind wrong guesses; and what was, behind append().
  bool wants_rejected() const { return proposer_ != nullptr && proposer_->wants_rejected(); }
  void see_rejected(const engine::StepPlan& plan, std::span<const SampledRow> rows);

 private:
  speculative::Proposer* const proposer_;
  const Options options_;
  std::vector<std::vector<TokenId>> tokens_;         // by slot
  std::vector<bool> wants_logprobs_;                 // by slot
  std::vector<speculative::DraftRequest> requests_;  // scratch
  std::vector<speculative::ComputedRows> computed_;  // scratch
};

}  // namespace pelton::executor
