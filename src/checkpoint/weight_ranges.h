// Which bytes of a checkpoint's tensors a process computes with: one process with all of them, one
// of several ranks with its part (layers/rank_weights.h). Views of the checkpoint, which outlives
// them. Plain values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

struct WeightRange {
  std::string_view tensor;         // its name
  int64_t at;                      // in the tensor
  std::span<const uint8_t> bytes;  // where they lie
};
using WeightRanges = std::vector<WeightRange>;

// All of every tensor.
WeightRanges whole_weights(const Checkpoint& checkpoint);
int64_t range_bytes(const WeightRanges& ranges);

}  // namespace pelton::checkpoint
