// YaRN as gpt-oss' authors published it, and as EAGLE-3 heads of its models are evaluated: where
// the ramp's bounds are not rounded (truncate: false) they are not cut off at the first and the
// last pair either, as transformers does. The two differ where the ramp begins before the first
// pair. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "families/model_config.h"

namespace pelton::families {

// Fills rope.divisors where that is so, for `size` rotated dimensions. Example, 32 dimensions,
// theta 10000, 64 tokens: 32 turns would be those of pair -2, one turn that of pair 4; pair 0,
// which stays where the ramp is cut off, is a third of the way.
inline void leave_ramp_uncut(RopeConfig& rope, int size) {
  if (rope.scaling != RopeScaling::kYarn || rope.truncate || rope.factor <= 1.0) return;
  const int half = size / 2;
  const auto pair_with_turns = [&](double turns) {
    return half * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) /
           std::log(rope.theta);
  };
  const double low = pair_with_turns(rope.beta_fast);
  const double high = pair_with_turns(rope.beta_slow);
  if (low >= 0 && high <= size - 1) return;
  const double width = std::max(high - low, 1e-3);
  for (int i = 0; i < half; ++i) {
    const double stretched = std::clamp((i - low) / width, 0.0, 1.0);
    rope.divisors.push_back(1.0 / (stretched / rope.factor + 1.0 - stretched));
  }
}

}  // namespace pelton::families
