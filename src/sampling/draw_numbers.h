// The numbers that a draw is made with, on the host (sampler.cc) and for a device (device_rows.cc).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/logit_rows.h"

namespace pelton::sampling {

inline kernels::LogitScale scale_of(float highest, float temperature) {
  constexpr double kLog2E = 1.4426950408889634;
  return {.highest = highest,
          .sharpness = static_cast<float>(std::min(kLog2E / temperature, 1e30))};
}

// Below this a repetition penalty has nothing left to change: any logit above 1e-22 of a repeated
// token, divided by it, is above all others. Dividing by still less would leave the floats, and
// what no longer differs cannot be ranked.
inline constexpr float kRepetitionPenaltyMin = 1e-30f;

inline float repetition_penalty_of(float asked) {
  return std::max(asked, kRepetitionPenaltyMin);
}

// top_p as so many of 2^53: exact, a float has 24 bits.
inline uint64_t share_bits(float top_p) {
  return static_cast<uint64_t>(double{top_p} * 0x1p53);
}

// What min_p leaves weighs at least so much.
inline kernels::Mass least_mass(float min_p) {
  const double least = std::ceil(double{min_p} * static_cast<double>(kernels::kWholeMass));
  return std::min(static_cast<kernels::Mass>(least), kernels::kWholeMass);
}

// ln of the sum of e^logit, `mass` being that of the row at temperature 1.
inline double log_total(float highest, kernels::Mass mass) {
  return highest + std::log(static_cast<double>(mass) / static_cast<double>(kernels::kWholeMass));
}

// JSON has no infinity: -9999 is what OpenAI's API prints for "never".
inline float logprob(float logit, double log_total) {
  return static_cast<float>(std::max(logit - log_total, -9999.0));
}

}  // namespace pelton::sampling
