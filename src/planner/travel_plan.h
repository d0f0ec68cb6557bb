// What keys and values that travel bring a load: prompts and answers on copies of their own, and
// further tiers behind the devices' memory. Sizes, rates that links and disks need, and what each
// saves; by the same arithmetic as the copies. Pure.
#pragma once

#include "planner/capacity_plan.h"
#include "planner/fleet_plan.h"

namespace pelton::planner {

struct TravelPlan {
  double token_bytes = 0;     // of a token beyond windows, on all devices of a copy
  double sequence_bytes = 0;  // of a sequence's windows
  double prompt_token_s = 0;  // that computing a prompt's token takes a copy that does nothing else
  // Apart; 0 copies: no output is worth it.
  int64_t prompt_copies = 0;
  int64_t answer_copies = 0;
  double split_bytes = 0;   // that cross for a request: the full groups' and one window's
  double split_rate = 0;    // bytes a second that a copy for prompts makes
  double split_gain = 0;    // how much faster each answer's tokens come
  double output_kept = 0;   // of what the same devices bring together
  double least_rate = 0;    // of a tier: below, computing is quicker (0.8 of it)
  double kept_rate = 0;     // bytes a second that a copy computes anew under its load
  double minute_bytes = 0;  // that a host must hold to keep what a minute has computed
  double hour_bytes = 0;    // likewise a disk
  double saved_s = 0;       // of a first token, where the earlier turns are found
  // Of the earlier turns, those that come again within what is kept.
  double minute_share = 0;
  double hour_share = 0;
};
// Of the layout that the plan has chosen. kDoesNotFit: it has chosen none.
Result<TravelPlan> plan_travel(const FleetPlanOptions& options, const CapacityPlan& plan);
Section travel_section(const FleetPlanOptions& options, const TravelPlan& travel);

}  // namespace pelton::planner
