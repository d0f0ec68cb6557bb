// What ranks that share out rows (`pelton serve --tensor-parallel-size`, docs/parallel.md) say to
// each other and take for a step, with a part of every expert on each (TP) and with experts dealt
// out whole (EP), and at how many answers at once one gives more than the other. A forecast. Pure.
#pragma once

#include <string>
#include <vector>

#include "cost_model/rank_step.h"
#include "planner/fleet_plan.h"

namespace pelton::planner {

// Answers at once, from one number to another, at which one form gives more tokens a second.
struct FormRange {
  bool experts_dealt = false;
  int from = 1;
  int to = 1;
};
struct RankPair {
  cost_model::RankStepModel tp;
  cost_model::RankStepModel ep;
};
// Between tokens of `rows` answers at once, with the prompts that follow them in the same steps.
double rank_itl_s(const CapacityOptions& options, const cost_model::RankStepModel& model,
                  const cost_model::RankLink& link, int rows);
// Up to `rows_max`: which form is the quicker, and where that changes.
std::vector<FormRange> form_ranges(const CapacityOptions& options, const RankPair& pair,
                                   const cost_model::RankLink& link, int rows_max);

// What the rank with the most takes and has left: the leader, which has the head whole, with the
// widest share of all else that is cut (experts as without expert parallel). Embedding, norms,
// routers and working memory are each rank's own, whole.
Result<MemoryPlan> rank_memory(const MemoryOptions& options, int ranks);

// kInvalidArgument: one device, or a model that ranks refuse.
Result<Section> rank_section(const FleetPlanOptions& options);

}  // namespace pelton::planner
