#include "executor/step_overlap.h"

#include <algorithm>

#include "sampling/device_rows.h"

namespace pelton::executor {
namespace {

// Its end has work for the host: embeddings, scores, rows that the host draws from.
bool ends_on_host(const engine::StepPlan& running, std::span<const SampledRow> rows,
                  const SlotTable& slots) {
  for (const ScheduledRow& row : running.sequences) {
    if (slots[row.slot].pooling || row.embed || row.targets.count > 0) return true;
  }
  return std::any_of(rows.begin(), rows.end(), [](const SampledRow& row) {
    return row.source != SampledRow::Source::kDevice;
  });
}

}  // namespace

bool may_overlap(const engine::StepPlan& next, const engine::StepPlan& running,
                 std::span<const SampledRow> rows, const SlotTable& slots,
                 const SlotGrammars& grammars) {
  if (ends_on_host(running, rows, slots)) return false;
  if (!next.copies.empty() || next.sequences.empty()) return false;
  size_t edits = next.banned.size();
  for (const ScheduledRow& row : next.sequences) {
    const engine::Arrival* const arrival = next.arrival_of(row);
    const Slot& slot = slots[row.slot];
    if (row.embed || row.targets.count > 0) return false;
    if (arrival != nullptr ? arrival->pooling.has_value() : slot.pooling.has_value()) return false;
    const bool is_drawn_from = slot.pending.row >= 0;  // by the running step
    if (is_drawn_from && (arrival != nullptr || grammars.active(row.slot))) return false;
    const request::SamplingParams& sampling =
        arrival != nullptr ? arrival->sampling : slot.sampling;
    if (sampling::DeviceRows::are_hosts(sampling)) return false;
    edits += sampling.logit_bias.size();
    if (!sampling.has_penalties()) continue;
    edits += sampling::DeviceRows::penalties_of(arrival != nullptr ? arrival->history.size()
                                                                   : slot.history.counts().size());
  }
  return edits <= sampling::DeviceRows::kEditsMax;
}

}  // namespace pelton::executor
