// From the rows of logits of a step to what each sequence is given: a token, what must follow it, a
// deferral or an error. What may be drawn from a row is known before the row is; then a device
// draws where it computed, or a worker from the logits. Owned by the executor; its thread, with its
// workers, each row by one of them.
//
// The way of a row whose grammar leaves {a, b} and whose plan suppresses b:
//   list     the row of sequence 3, whose newest token is known
//   prepare  allowed {a, b}, suppressed {b}
//   draw     a, with the sampler of whichever worker comes to it
//   settle   the grammar is over a; the slot's newest token is a; result.tokens[row] = a
//
// Speculation: a row with guesses has a row of logits behind each of them. They are drawn from one
// after the other, each as if there were no guesses (the slot and its grammar are over the token
// before), as long as the guess behind is what was drawn; so nothing is ever taken back.
//
//   guesses c d   drawn c        the guess: go on
//                 drawn e        not d: the row gives c e, 1 of 2 guesses accepted
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/step_plan.h"
#include "executor/batch_builder.h"
#include "executor/slot_grammars.h"
#include "executor/slot_table.h"
#include "sampling/device_rows.h"
#include "sampling/sampler.h"

namespace pelton::executor {

// A sequence's row of logits, from what may be drawn to where the token comes from.
struct SampledRow {
  // Where the token comes from. Until the row is prepared: the logits.
  enum class Source : uint8_t {
    kLogits,
    kDevice,    // drawn where it was computed
    kHeld,      // drawn from an earlier row, which was deferred
    kDeferred,  // none yet
    kFailed,    // none may follow
  };

  size_t sequence = 0;  // index in the plan
  // Of the step before, where the sequence's newest token is still being drawn; negative: none.
  int32_t pending_row = -1;
  int32_t first_logits = 0;  // its row of logits; there is one more for each guess
  std::span<const TokenId> guesses{};
  int32_t given = 0;    // tokens, so far
  int32_t guessed = 0;  // of these, as they were guessed, without a gap
  Source source = Source::kLogits;
  std::span<const TokenId> suppressed{};
  std::span<const uint64_t> allowed{};  // a bit a token; empty: all
  std::vector<uint64_t> forced{};       // what `allowed` is, where the plan puts a token there
  std::vector<TokenId> rejected{};      // drawn behind guesses[guessed], and those behind it
};

class RowSampler {
 public:
  struct Options {
    int vocab_size = 0;     // of a row of logits
    int sampled_vocab = 0;  // ids from here on are never sampled
    int jump_tokens_max = engine::kJumpTokensMax;
    bool draws_rejected = false;  // a proposer wants what is drawn behind wrong guesses
  };

  // All outlive it. `samplers`: one a worker of the pool.
  RowSampler(const Options& options, base::ThreadPool& pool, std::span<sampling::Sampler> samplers,
             SlotTable& slots, SlotGrammars& grammars)
      : options_(options), pool_(pool), samplers_(samplers), slots_(slots), grammars_(grammars) {}

  // The batch's rows, and the result's sequences with the place of each one's token. `drafts`
  // outlives them.
  std::vector<SampledRow> list(const engine::StepPlan& plan, const Batch& batch,
                               const Drafts& drafts, engine::StepResult& result);

  // For a device that draws: prepares all rows and gives `device` those that are its.
  void prepare_for_device(const engine::StepPlan& plan, std::span<SampledRow> rows,
                          sampling::DeviceRows& device);

  // Draws, and gives each sequence its tokens. `device`: what was prepared for it; null: the rows
  // are prepared here. logits: float (rows of logits, vocab_size); those of a device's rows hold
  // nothing.
  void sample(const engine::StepPlan& plan, std::span<SampledRow> rows,
              const sampling::DeviceRows* device, float* logits, engine::StepResult& result);

  // The step failed: none of its rows gives a token.
  void forget(const engine::StepPlan& plan, std::span<const SampledRow> rows);

 private:
  void prepare(const engine::StepPlan& plan, SampledRow& row);
  void constrain(SampledRow& row, engine::Slot slot, TokenId forced);
  sampling::DrawInput input_of(const engine::StepPlan& plan, const SampledRow& row) const;
  void sample_row(const engine::StepPlan& plan, SampledRow& row, float* logits,
                  sampling::Sampler& sampler, engine::StepResult& result);
  void draw_rejected(const engine::StepPlan& plan, SampledRow& row, float* logits,
                     sampling::Sampler& sampler);
  bool settle(const engine::StepPlan& plan, SampledRow& row, const sampling::SampledChoice& drawn,
              engine::StepResult& result);
  bool refuse(const engine::StepPlan& plan, const SampledRow& row, std::optional<Error> error,
              engine::StepResult& result);
  void give(SampledRow& row, engine::SampledToken token, engine::StepResult& result);
  int jump_max(const ScheduledRow& sequence) const;

  const Options options_;
  base::ThreadPool& pool_;
  const std::span<sampling::Sampler> samplers_;
  SlotTable& slots_;
  SlotGrammars& grammars_;
  std::vector<std::vector<engine::SampledToken>> further_;  // by row: behind its first token
  std::vector<size_t> sequences_;                           // by row; scratch
};

}  // namespace pelton::executor
