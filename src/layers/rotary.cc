#include "layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pelton::layers {

Rotary::Rotary(const checkpoint::ModelConfig& config) {
  const checkpoint::YarnConfig& yarn = config.yarn;
  const int half = config.head_size / 2;
  const double log_theta = std::log(config.rope_theta);
  // The pair whose wavelength turns `turns` times within the original context.
  const auto pair_with_turns = [&](double turns) {
    return half * std::log(yarn.original_context / (turns * 2 * std::numbers::pi)) / log_theta;
  };
  double low = pair_with_turns(yarn.beta_fast);
  double high = pair_with_turns(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::max(std::floor(low), 0.0);
    high = std::min(std::ceil(high), double{config.head_size - 1.0});
  }
  const double width = std::max(high - low, 1e-3);

  inverse_frequency_.resize(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    const double frequency = std::pow(config.rope_theta, 2.0 * i / config.head_size);
    const double ramp = yarn.factor > 1.0 ? std::clamp((i - low) / width, 0.0, 1.0) : 0.0;
    inverse_frequency_[i] = ramp / (yarn.factor * frequency) + (1.0 - ramp) / frequency;
  }
  if (yarn.factor > 1.0) concentration_ = 0.1 * std::log(yarn.factor) + 1.0;
}

void Rotary::table_row(int position, float* out) const {
  const size_t half = inverse_frequency_.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * inverse_frequency_[i];
    out[i] = static_cast<float>(concentration_ * std::cos(angle));
    out[half + i] = static_cast<float>(concentration_ * std::sin(angle));
  }
}

}  // namespace pelton::layers
