// How much of what some copies of a model can answer in the long run a load asks for. Pure.
#pragma once

#include <optional>
#include <string>

#include "planner/capacity_plan.h"
#include "workload/offered_load.h"

namespace pelton::planner {

struct LoadShare {
  double computed = 0;               // every prompt computed whole; 1: as much as they can
  std::optional<double> with_cache;  // with what the prefix cache held, if it held some
};

struct OfferedTo {
  const workload::OfferedLoad& load;
  int replicas = 1;
  double cached_share = 0;  // of prompt tokens, found in the prefix cache
};

// Empty: all came at once, so that the queue was never empty; or a copy is not possible.
std::optional<LoadShare> load_share(CapacityOptions capacity, const OfferedTo& offered);

// "80 % of what they can answer in the long run (60 % with the prefix cache as here)".
std::string load_words(const std::optional<LoadShare>& share, int replicas);

}  // namespace pelton::planner
