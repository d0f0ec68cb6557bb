// What one of several ranks holds of a model, in bytes: what is planned for it, and, as it says
// itself once it has loaded, what it has. They agree, or the group does not begin. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "layers/expert_placement.h"

namespace pelton::executor {

struct RankBytes {
  int64_t weights = 0;  // of the files: those that it computes with
  int64_t caches = 0;   // allocated: its heads' keys and values, and their swap space

  bool operator==(const RankBytes&) const = default;
};

// Of each rank, in proportion to `weights`: its rows of the weights (layers/rank_weights.h), and of
// what one process would have of caches as many as it has of the key/value heads. Errors: as
// layers::rank_weights.
Result<std::vector<RankBytes>> plan_rank_bytes(const checkpoint::Checkpoint& checkpoint,
                                               const std::vector<int>& weights,
                                               const layers::ExpertTable& experts,
                                               const cost_model::Footprint& footprint);

// "123 456", and back. Error: kBadConfig.
std::string to_text(const RankBytes& bytes);
Result<RankBytes> rank_bytes_of(std::string_view text);

}  // namespace pelton::executor
