// The grammars that constrain the answers in the slots (followed by guide_work.h): which tokens
// each allows next, which must follow, and which rows wait because finding that out takes longer
// than a step may. Owned by the executor; its thread, and during a step its workers, each at the
// slots of its own rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/step_plan.h"
#include "executor/batch_builder.h"
#include "executor/guide_work.h"
#include "executor/slot_table.h"
#include "sampling/sampler.h"

namespace pelton::executor {

class SlotGrammars {
 public:
  struct Options {
    int slots = 0;
    int sampling_slots = 0;  // the first so many; the others have no grammar
    int vocab_size = 0;      // of the rows of logits
    int sampled_vocab = 0;   // ids from here on are never sampled
    // What one grammar may make a step wait for, in steps of work (grammar/work_budget.h).
    int64_t work_max = 0;
  };

  // What the grammar says of a row whose token is due.
  enum class Next : uint8_t {
    kDraw,   // one of allowed()
    kHeld,   // held(): drawn from an earlier row, which was deferred
    kDefer,  // not known yet: see deferral()
    kFail,   // see error()
  };

  // `pool` computes the steps; it outlives this.
  SlotGrammars(const Options& options, base::ThreadPool& pool);

  // Of every plan, in order: arrivals bring their grammars, and what each may make this step wait
  // for is divided anew.
  void apply(const engine::StepPlan& plan);

  bool active(engine::Slot slot) const { return at(slot).follower.active(); }

  // Nothing may follow what it is over.
  bool over(engine::Slot slot) const { return at(slot).follower.over(); }

  // forced: the token that the plan puts there, or engine::kNotForced.
  Next next(engine::Slot slot, TokenId forced);
  std::span<const uint64_t> allowed(engine::Slot slot) const { return at(slot).follower.allowed(); }
  const sampling::SampledChoice& held(engine::Slot slot) const { return *at(slot).held; }
  std::shared_ptr<const engine::Deferral> deferral(engine::Slot slot) const {
    return at(slot).deferral;
  }
  Error error(engine::Slot slot) const { return at(slot).follower.error(); }

  // The grammar advances over the token that was drawn and over at most `jump_max` that must
  // follow it. kDraw: done. kDefer: the token is held until the grammar is over it.
  Next accept(engine::Slot slot, const sampling::SampledChoice& choice, int jump_max);
  // The token has been given to the sequence: what must follow it.
  std::vector<TokenId> take_forced(engine::Slot slot);

  // Of a plan that is applied: guesses that may not come are cut off, with all behind them, before
  // they are computed.
  void cut(const engine::StepPlan& plan, Drafts& drafts);

  // What may come next is known as soon as the last token is, so it is found out between two steps,
  // when nothing else is computed: for all rows of the plan that is done.
  void fill_masks(const engine::StepPlan& plan);

  int64_t bytes() const { return bytes_; }  // of the masks

 private:
  struct State {
    GuideFollower follower;
    // Drawn, and not emitted before the grammar is over it: that takes longer than a step.
    std::optional<sampling::SampledChoice> held;
    // Its last row was deferred. A row that was planned behind that one is void.
    std::shared_ptr<const engine::Deferral> deferral;
  };

  State& at(engine::Slot slot) { return states_[static_cast<size_t>(slot)]; }
  const State& at(engine::Slot slot) const { return states_[static_cast<size_t>(slot)]; }
  GuideFollower::Grant grant();
  void divide_work(const engine::StepPlan& plan);

  const Options options_;
  base::ThreadPool& pool_;
  std::vector<State> states_;
  std::vector<State*> wanted_;  // scratch of fill_masks
  std::vector<size_t> cut_;     // scratch of cut: rows of drafts
  int64_t work_max_ = 0;        // of one grammar, in the step at hand
  int64_t bytes_ = 0;
  GuideThreads threads_;
};

}  // namespace pelton::executor
