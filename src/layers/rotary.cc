#include "layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pelton::layers {
namespace {

using families::RopeConfig;
using families::RopeScaling;

// Pairs below `low` keep their frequency, those from `high` on are stretched by the factor.
struct Ramp {
  double low = 0;
  double width = 1;
};

// arXiv 2309.00071, section 3.2. Worked example, gpt-oss: 32 pairs, theta 150000, 4096 tokens:
// pair 8.09 turns 32 times and pair 17.4 once, so pairs 0 to 8 stay and pairs 18 to 31 are / 32.
Ramp yarn_ramp(const RopeConfig& rope, int half) {
  const double log_theta = std::log(rope.theta);
  // The pair whose wavelength turns `turns` times within the original context.
  const auto pair_with_turns = [&](double turns) {
    return half * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) / log_theta;
  };
  double low = pair_with_turns(rope.beta_fast);
  double high = pair_with_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, 2.0 * half - 1.0);
  return {.low = low, .width = std::max(high - low, 1e-3)};
}

// How much of the stretched frequency pair i, of this frequency's inverse, gets: 0 to 1.
double stretched_share(const RopeConfig& rope, const Ramp& ramp, int i, double inverse) {
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kLongrope:  // by its divisors
      return 0.0;
    case RopeScaling::kLinear:
      return 1.0;
    case RopeScaling::kLlama3: {
      // transformers' modeling_rope_utils.py, _compute_llama3_parameters.
      const double turns = rope.original_context / (inverse * 2 * std::numbers::pi);
      const double kept =
          (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      return 1.0 - std::clamp(kept, 0.0, 1.0);
    }
    case RopeScaling::kYarn:
      return rope.factor > 1.0 ? std::clamp((i - ramp.low) / ramp.width, 0.0, 1.0) : 0.0;
  }
  return 0.0;
}

}  // namespace

Rotary::Rotary(const families::ModelConfig& config) : Rotary(config.rope, config.rotary_size()) {}

Rotary::Rotary(const RopeConfig& rope, int size) {
  const int half = size / 2;
  const Ramp ramp = rope.scaling == RopeScaling::kYarn ? yarn_ramp(rope, half) : Ramp{};
  inverse_frequency_.resize(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    const double frequency = std::pow(rope.theta, 2.0 * i / size);
    if (!rope.divisors.empty()) {
      inverse_frequency_[i] = 1.0 / (frequency * rope.divisors[static_cast<size_t>(i)]);
      continue;
    }
    const double stretched = stretched_share(rope, ramp, i, frequency);
    inverse_frequency_[i] = stretched / (rope.factor * frequency) + (1.0 - stretched) / frequency;
  }
  attention_factor_ = rope.attention_factor;  // 1 but for YaRN and longrope
}

void Rotary::table_row(int position, float* out) const {
  const size_t half = inverse_frequency_.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * inverse_frequency_[i];
    out[i] = static_cast<float>(attention_factor_ * std::cos(angle));
    out[half + i] = static_cast<float>(attention_factor_ * std::sin(angle));
  }
}

}  // namespace pelton::layers
