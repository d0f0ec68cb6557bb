// What a fleet that is scaled did, over time: how it stood at each decision, and the decisions that
// changed something, with their reasons. Values, bounded; one owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pelton::simulator {

struct ScalingSample {
  double at_s = 0;
  int64_t requests = 0;  // that have come until then
  int held = 0;
  int in_service = 0;
  int desired = 0;
  int starting = 0;
  int ready = 0;
  int draining = 0;
  // Of these, where requests are split: those that compute prompts.
  int prefill_desired = 0;
  int prefill_ready = 0;

  int present() const { return starting + ready + draining; }
};

struct ScalingStep {
  double at_s = 0;
  int desired = 0;
  int started = 0;
  int not_started = 0;  // ordered, and the launcher had none
  int recalled = 0;
  int drained = 0;
  std::string text;  // autoscaler::PoolDecision's
};

class ScalingHistory {
 public:
  static constexpr size_t kSamplesMax = 65'536;
  static constexpr size_t kStepsMax = 10'000;

  // In the order of time. When there are too many, every other one is left out from the beginning
  // on, and of those to come as well.
  void note(const ScalingSample& sample);
  // Further ones than the first kStepsMax are only counted.
  void note(ScalingStep step);

  const std::vector<ScalingSample>& samples() const { return samples_; }
  const std::vector<ScalingStep>& steps() const { return steps_; }
  int64_t steps_count() const { return steps_count_; }

 private:
  std::vector<ScalingSample> samples_;
  std::vector<ScalingStep> steps_;
  int64_t steps_count_ = 0;
  int64_t noted_ = 0;
  int64_t stride_ = 1;
};

}  // namespace pelton::simulator
