#include "executor/slot_table.h"

#include <algorithm>
#include <utility>

#include "executor/loaded_adapter.h"

namespace pelton::executor {
namespace {

const lora::Adapter* adapter_of(const request::AdapterWeights* weights) {
  if (weights == nullptr) return nullptr;
  return &static_cast<const LoadedAdapter*>(weights)->adapter();
}

}  // namespace

void SlotTable::apply(const engine::StepPlan& plan) {
  for (const ScheduledRow& row : plan.sequences) {
    Slot& slot = at(row.slot);
    slot.tables.follow(plan, row);
    const engine::Arrival* const arrival = plan.arrival_of(row);
    if (arrival == nullptr) continue;
    slot.sampling = arrival->sampling;
    slot.pooling = arrival->pooling;
    slot.label_tokens = arrival->label_tokens;
    slot.second_text = arrival->second_text;
    slot.adapter = adapter_of(arrival->adapter);
    slot.adapter_from = arrival->adapter_from;
    slot.mirostat_bound = arrival->mirostat_bound;
    slot.known_tokens = 0;
    slot.history.clear();
    if (!slot.sampling.reads_history()) continue;
    const std::span<const TokenId> history(arrival->history);
    const auto prompt = std::min(static_cast<size_t>(arrival->prompt_count), history.size());
    slot.history.add_prompt(history.first(prompt));
    for (const TokenId token : history.subspan(prompt)) slot.history.add_output(token);
  }
}

bool SlotTable::samples(const ScheduledRow& row) const {
  return row.sample && row.start + row.token_count() >= (*this)[row.slot].known_tokens;
}

TokenId SlotTable::input_token(engine::Slot index) const {
  const Slot& slot = (*this)[index];
  return slot.pending.row >= 0 ? ~slot.pending.row : slot.last_token;
}

int32_t SlotTable::expect_token(engine::Slot index, Slot::Pending from) {
  return std::exchange(at(index).pending, from).row;
}

void SlotTable::stop_expecting(engine::Slot index, int64_t step) {
  Slot& slot = at(index);
  if (slot.pending.step == step) slot.pending = {};
}

void SlotTable::append(engine::Slot index, TokenId token, float surprise) {
  Slot& slot = at(index);
  slot.mirostat_bound = slot.sampling.mirostat.next_bound(slot.mirostat_bound, surprise);
  slot.last_token = token;
  if (slot.sampling.reads_history()) slot.history.add_output(token);
}

void SlotTable::append_known(const ScheduledRow& row, int sampled,
                             std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  Slot& slot = at(row.slot);
  if (slot.sampling.reads_history()) {
    for (const TokenId token : tokens) slot.history.add_output(token);
  }
  slot.known_tokens = row.start + row.token_count() + sampled + static_cast<int>(tokens.size());
}

}  // namespace pelton::executor
