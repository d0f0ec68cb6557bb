#include "executor/batch_builder.h"

#include <span>

namespace pelton::executor {

Batch build_batch(const engine::StepPlan& plan, const SlotTable& slots, const Drafts& drafts,
                  int group_count) {
  Batch batch;
  models::ForwardInput& input = batch.input;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const ScheduledRow& row = plan.sequences[i];
    const std::span<const TokenId> known = row.tokens.of(plan.tokens);
    input.tokens.insert(input.tokens.end(), known.begin(), known.end());
    if (known.empty()) input.tokens.push_back(slots.input_token(row.slot));
    const std::span<const TokenId> guesses = drafts.of(i);
    const auto first_sampled = static_cast<int>(input.tokens.size()) - 1;
    input.tokens.insert(input.tokens.end(), guesses.begin(), guesses.end());
    kv::PerGroup<const int32_t*> tables;
    for (int group = 0; group < group_count; ++group) {
      tables.push_back(slots[row.slot].tables.of(group).data());
    }
    const auto guess_count = static_cast<int>(guesses.size());
    input.sequences.push_back({.start = row.start,
                               .count = row.token_count() + guess_count,
                               .tables = tables,
                               .adapter = slots[row.slot].adapter,
                               .adapter_from = slots[row.slot].adapter_from,
                               .second_text = slots[row.slot].second_text,
                               .slot = row.slot});
    if (!slots.samples(row)) continue;
    for (int guess = 0; guess <= guess_count; ++guess) {
      input.logit_rows.push_back(first_sampled + guess);
      batch.logit_sequences.push_back(i);
    }
  }
  return batch;
}

std::vector<int> first_rows(const engine::StepPlan& plan, const Drafts& drafts) {
  std::vector<int> first;
  int row = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    first.push_back(row);
    row += plan.sequences[i].token_count() + static_cast<int>(drafts.of(i).size());
  }
  return first;
}

}  // namespace pelton::executor
