#include "simulator/scaling_history.h"

#include <utility>

namespace pelton::simulator {

void ScalingHistory::note(const ScalingSample& sample) {
  if (noted_++ % stride_ != 0) return;
  samples_.push_back(sample);
  if (samples_.size() < kSamplesMax) return;
  size_t kept = 0;
  for (size_t i = 0; i < samples_.size(); i += 2) samples_[kept++] = samples_[i];
  samples_.resize(kept);
  stride_ *= 2;
}

void ScalingHistory::note(ScalingStep step) {
  ++steps_count_;
  if (steps_.size() < kStepsMax) steps_.push_back(std::move(step));
}

}  // namespace pelton::simulator
