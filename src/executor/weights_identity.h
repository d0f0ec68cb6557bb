// What weights are, for those who take over what others have computed with theirs: keys and values
// of other weights must not be taken for one's own. Pure; the load's thread.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"

namespace pelton::executor {

// Of names, types and shapes of all tensors and of some bytes of each, which a whole fleet
// compares: other weights of the same shapes are found out, without reading them.
std::string model_digest(const checkpoint::Checkpoint& checkpoint);

// Up to so many bytes of weights each of them counts.
inline constexpr int64_t kWholeWeightsMax = int64_t{64} << 20;
// Of more, besides what model_digest has of each tensor, pages as far from each other as makes so
// many: what was changed over one part of 4,096 of all weights is found, whatever it was; less may
// not be.
inline constexpr int64_t kSampledPages = 4096;
inline constexpr int64_t kSampledPageBytes = 4096;

struct WeightsSampling {
  int64_t whole_max = kWholeWeightsMax;
  int64_t pages = kSampledPages;
};
std::string weights_identity(const checkpoint::Checkpoint& checkpoint,
                             const WeightsSampling& sampling);

}  // namespace pelton::executor
