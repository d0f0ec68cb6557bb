// What is known of the sequence in each slot: how it is sampled, its block tables, its newest
// token. Plans update it when a step begins, results when it ends. Owned by the executor; its
// thread, and during a step its workers, each at the slots of its own rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "engine/seat_tables.h"
#include "engine/step_plan.h"
#include "lora/adapter.h"
#include "request/generation_request.h"
#include "sampling/token_history.h"

namespace pelton::executor {

using ScheduledRow = engine::ScheduledRow;

struct Slot {
  request::SamplingParams sampling;
  sampling::TokenHistory history;  // empty unless sampling.reads_history()
  engine::SlotTables tables;
  const lora::Adapter* adapter = nullptr;   // its rows'; null: none
  int adapter_from = 0;                     // of those from this position on
  std::optional<request::Pooling> pooling;  // an embedding is made; it never samples
  std::vector<TokenId> label_tokens;        // of Pooling::kTokens
  int second_text = 0;                      // as GenerationRequest's
  TokenId last_token = 0;                   // the newest that was sampled
  float mirostat_bound = 0.0f;              // behind it, of sampling.mirostat
  // Tokens whose ids are known, counted from the sequence's beginning, if jump-forward decoding is
  // ahead of what is computed. A row that ends before them samples nothing.
  int known_tokens = 0;
  // The row of logits that the next token is being drawn from, in a step that is not finished.
  struct Pending {
    int64_t step = -1;
    int32_t row = -1;  // negative: none
  };
  Pending pending;
};

class SlotTable {
 public:
  explicit SlotTable(int slot_count) : slots_(static_cast<size_t>(slot_count)) {}

  const Slot& operator[](engine::Slot index) const { return slots_[static_cast<size_t>(index)]; }

  // Of every plan, in order, before its batch is built: arrivals take their slots, block tables
  // grow.
  void apply(const engine::StepPlan& plan);

  // Whether the row's logits are wanted: not if its token is known already.
  bool samples(const ScheduledRow& row) const;

  // The input of a row that names none: the newest token, or ~row where that one is still being
  // drawn from a row of the step before.
  TokenId input_token(engine::Slot index) const;

  // From here on the slot's next token is being drawn from this row of logits. Gives the row of the
  // step before that the newest token is still being drawn from; negative: there is none.
  int32_t expect_token(engine::Slot index, Slot::Pending from);
  // The step is over for the slot; unless a later one is awaited by now.
  void stop_expecting(engine::Slot index, int64_t step);

  // The row's token was sampled; `surprise` as SampledToken's.
  void append(engine::Slot index, TokenId token, float surprise);
  // And these are known to follow it (jump-forward decoding): they stand behind the `sampled`
  // tokens that the row gave.
  void append_known(const ScheduledRow& row, int sampled, std::span<const TokenId> tokens);

 private:
  Slot& at(engine::Slot index) { return slots_[static_cast<size_t>(index)]; }

  std::vector<Slot> slots_;
};

}  // namespace pelton::executor
