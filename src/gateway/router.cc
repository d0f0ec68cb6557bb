#include "gateway/router.h"

#include <algorithm>

namespace pelton::gateway {
namespace {

// Within so much of the least the difference is noise: reports are some milliseconds old.
constexpr double kEqualLoad = 0.01;

double load_of(const Candidate& candidate) {
  const int sequences = candidate.running + candidate.waiting + candidate.uncounted;
  return static_cast<double>(sequences) / std::max(candidate.slots, 1);
}

}  // namespace

std::optional<size_t> choose_worker(std::span<const Candidate> candidates, uint64_t draw) {
  double least = 0;
  bool any = false;
  for (const Candidate& candidate : candidates) {
    if (!candidate.usable) continue;
    least = any ? std::min(least, load_of(candidate)) : load_of(candidate);
    any = true;
  }
  if (!any) return std::nullopt;
  uint64_t equals = 0;
  const auto is_equal = [&](const Candidate& candidate) {
    return candidate.usable && load_of(candidate) <= least + kEqualLoad;
  };
  for (const Candidate& candidate : candidates) equals += is_equal(candidate) ? 1 : 0;
  uint64_t left = draw % equals;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (is_equal(candidates[i]) && left-- == 0) return i;
  }
  return std::nullopt;
}

}  // namespace pelton::gateway
