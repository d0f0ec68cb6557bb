#include "checkpoint/weight_ranges.h"

namespace pelton::checkpoint {

WeightRanges whole_weights(const Checkpoint& checkpoint) {
  WeightRanges ranges;
  for (const auto& [name, tensor] : checkpoint.tensors()) ranges.push_back({name, 0, tensor.bytes});
  return ranges;
}

int64_t range_bytes(const WeightRanges& ranges) {
  int64_t bytes = 0;
  for (const WeightRange& range : ranges) bytes += std::ssize(range.bytes);
  return bytes;
}

}  // namespace pelton::checkpoint
