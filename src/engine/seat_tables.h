// The block tables of one slot, one in each KV group, as its rows have changed them. Executors and
// tests keep one a slot; whoever carries out the rows owns it.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/check.h"
#include "engine/step_plan.h"

namespace pelton::engine {

class SlotTables {
 public:
  // Every row of the slot, in order, also one that is not carried out.
  void follow(const StepPlan& plan, const ScheduledRow& row) {
    for (const TableUpdate& update : row.table_updates.of(plan.table_updates)) {
      std::vector<BlockId>& table = groups_[static_cast<size_t>(update.group)];
      extend(table, update.first, update.blocks.of(plan.blocks));
      for (size_t i = std::min(static_cast<size_t>(update.begin), table.size()); i-- > 0;) {
        if (table[i] == kNoBlock) break;
        table[i] = kNoBlock;
      }
    }
  }

  const std::vector<BlockId>& of(int group) const { return groups_[static_cast<size_t>(group)]; }

 private:
  static void extend(std::vector<BlockId>& table, int32_t first, std::span<const BlockId> blocks) {
    CHECK(first >= 0 && static_cast<size_t>(first) <= table.size(), "a block table with a gap");
    table.resize(static_cast<size_t>(first));
    table.insert(table.end(), blocks.begin(), blocks.end());
  }

  std::array<std::vector<BlockId>, kv::kGroupsMax> groups_;
};

}  // namespace pelton::engine
