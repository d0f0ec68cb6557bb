// Rotary position embedding (arXiv 2104.09864): the tables for a step's positions, computed in
// double and rounded once. Immutable; any thread.
#pragma once

#include <vector>

#include "families/model_config.h"

namespace pelton::layers {

class Rotary {
 public:
  explicit Rotary(const families::ModelConfig& config);  // of layers with config.rope
  // `size`: elements of a head that turn.
  Rotary(const families::RopeConfig& rope, int size);

  int size() const { return 2 * static_cast<int>(inverse_frequency_.size()); }
  const std::vector<double>& inverse_frequency() const { return inverse_frequency_; }
  double attention_factor() const { return attention_factor_; }

  // out: size() floats: the cosines at `position`, then the sines, times the attention factor.
  void table_row(int position, float* out) const;

 private:
  std::vector<double> inverse_frequency_;  // size() / 2
  double attention_factor_ = 1.0;          // RopeConfig's
};

}  // namespace pelton::layers
