// Which rank gets which experts, whole (--enable-expert-parallel, docs/decisions/0145): neighbours
// together, or by how often each was chosen, the most chosen first; some of those on several ranks.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "families/model_config.h"

namespace pelton::layers {

// Of each layer, of each of its experts, the ranks that have it, rising; of a layer without experts
// none.
using ExpertTable = std::vector<std::vector<std::vector<int>>>;
// Likewise, how often tokens chose it.
using ExpertLoads = std::vector<std::vector<int64_t>>;

// Of 32 experts and 3 ranks, 0 to 10, 11 to 21 and 22 to 31. Errors: kUnsupported where there are
// no experts, or fewer than ranks.
Result<ExpertTable> deal_experts(const families::ModelConfig& config, int ranks);

// In each layer so many copies of the experts that are chosen most, a rank having one of an expert
// at most; then each to the rank that has least to do so far, the most chosen first, and to none
// more than its share of their number. A copy that finds no rank without its expert is left out.
ExpertTable place_experts(const ExpertLoads& loads, int ranks, int copies);

// What somebody else made is of this model, and of so many ranks. Errors: kBadConfig.
Result<void> check_experts(const ExpertTable& table, const families::ModelConfig& config,
                           int ranks);
Result<void> check_loads(const ExpertLoads& loads, const families::ModelConfig& config);

}  // namespace pelton::layers
