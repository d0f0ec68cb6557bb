// Whether a step may begin before the one before it is finished: if it hangs on nothing that only
// the end of that one says. Then a device goes on without waiting for anyone
// (docs/decisions/0024). Pure; executor thread.
#pragma once

#include <span>

#include "engine/step_plan.h"
#include "executor/row_sampler.h"
#include "executor/slot_grammars.h"
#include "executor/slot_table.h"

namespace pelton::executor {

// `running` has been applied to slots and grammars, `next` has not. rows: of the running step.
bool may_overlap(const engine::StepPlan& next, const engine::StepPlan& running,
                 std::span<const SampledRow> rows, const SlotTable& slots,
                 const SlotGrammars& grammars);

}  // namespace pelton::executor
