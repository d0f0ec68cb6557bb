// Step plans by hand, for tests of the executor's units. Tests only.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/step_plan.h"

namespace pelton::executor {

struct TestRow {
  engine::Slot slot = 0;
  int start = 0;
  std::vector<TokenId> tokens;  // empty: the one that was sampled last
  std::vector<TokenId> targets;
  std::vector<TokenId> suppressed;
  TokenId forced = engine::kNotForced;
  bool sample = false;
  bool embed = false;
};

// Gives the row's index.
inline size_t add_row(engine::StepPlan& plan, const TestRow& row) {
  plan.sequences.push_back({.slot = row.slot,
                            .start = row.start,
                            .tokens = engine::append<TokenId>(plan.tokens, row.tokens),
                            .targets = engine::append<TokenId>(plan.tokens, row.targets),
                            .banned = engine::append<TokenId>(plan.banned, row.suppressed),
                            .forced = row.forced,
                            .sample = row.sample,
                            .embed = row.embed});
  return plan.sequences.size() - 1;
}

// The last row is its sequence's first; gives the sequence's arrival.
inline auto& arrive(engine::StepPlan& plan) {
  plan.sequences.back().arrival = static_cast<int32_t>(plan.arrivals.size());
  return plan.arrivals.emplace_back();
}

// The last row's table in this group has these blocks from entry `first` on.
inline void add_blocks(engine::StepPlan& plan, int group, int first,
                       const std::vector<engine::BlockId>& blocks) {
  auto& updates = plan.sequences.back().table_updates;
  if (updates.count == 0) updates.first = static_cast<int32_t>(plan.table_updates.size());
  ++updates.count;
  plan.table_updates.push_back({.group = group,
                                .first = first,
                                .begin = 0,
                                .blocks = engine::append<engine::BlockId>(plan.blocks, blocks)});
}

}  // namespace pelton::executor
