// Rotary position embedding with YaRN ("NTK by parts", arXiv 2309.00071): the tables for a step's
// positions, computed in double and rounded once. Immutable; any thread.
#pragma once

#include <vector>

#include "checkpoint/model_config.h"

namespace pelton::layers {

class Rotary {
 public:
  explicit Rotary(const checkpoint::ModelConfig& config);

  int head_size() const { return 2 * static_cast<int>(inverse_frequency_.size()); }
  const std::vector<double>& inverse_frequency() const { return inverse_frequency_; }
  double concentration() const { return concentration_; }

  // out: head_size floats: the cosines at `position`, then the sines, times the concentration.
  void table_row(int position, float* out) const;

 private:
  std::vector<double> inverse_frequency_;  // head_size / 2
  double concentration_ = 1.0;             // 0.1 ln(factor) + 1
};

}  // namespace pelton::layers
