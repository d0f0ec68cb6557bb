// A plan, or why there is none, in words and as JSON. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "capacity/allocation.h"
#include "capacity/explanation.h"

namespace pelton::capacity {

// `explanation` may be null.
std::string plan_text(const FleetNeeds& needs, const Plan& plan, const Explanation* explanation);
Json plan_json(const FleetNeeds& needs, const Plan& plan, const Explanation* explanation);
// "m for eu, without zone a/eu/1: 6 requests/s are asked, at most 4 are possible, 2 are missing; no
// machine is left of dear". One line for each shortfall.
std::string shortfall_text(const Plan& plan);

}  // namespace pelton::capacity
