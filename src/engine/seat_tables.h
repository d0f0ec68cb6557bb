// The block tables of one seat, as its rows have told them. Executors and tests keep one a seat;
// whoever carries out the rows owns it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "engine/step_plan.h"

namespace pelton::engine {

struct SeatTables {
  std::vector<BlockId> full;
  std::vector<BlockId> window;

  // Every row of the seat, in order, also one that is not carried out.
  void follow(const StepPlan& plan, const PlannedSequence& row) {
    extend(full, row.full_first, row.full_blocks.of(plan.blocks));
    extend(window, row.window_first, row.window_blocks.of(plan.blocks));
    for (size_t i = std::min(static_cast<size_t>(row.window_begin), window.size()); i-- > 0;) {
      if (window[i] == kNoBlock) break;
      window[i] = kNoBlock;
    }
  }

 private:
  static void extend(std::vector<BlockId>& table, int32_t first, std::span<const BlockId> blocks) {
    CHECK(first >= 0 && static_cast<size_t>(first) <= table.size(), "a block table with a gap");
    table.resize(static_cast<size_t>(first));
    table.insert(table.end(), blocks.begin(), blocks.end());
  }
};

}  // namespace pelton::engine
