#include "audio/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>

#include "base/check.h"

namespace pelton::audio {
namespace {

constexpr int kZeroCrossings = 32;    // of the sinc, on either side
constexpr double kKaiserBeta = 10.0;  // about 100 dB below

// The modified Bessel function of order 0, by its series.
double bessel0(double x) {
  double sum = 1.0;
  double term = 1.0;
  for (int k = 1; k < 64 && term > sum * 1e-17; ++k) {
    term *= x / (2 * k) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  return std::sin(std::numbers::pi * x) / (std::numbers::pi * x);
}

}  // namespace

std::vector<float> resample(std::span<const float> samples, int from_rate, int to_rate) {
  CHECK(from_rate > 0 && to_rate > 0);
  if (from_rate == to_rate || samples.empty()) return {samples.begin(), samples.end()};
  const int64_t divisor = std::gcd(from_rate, to_rate);
  const int64_t up = to_rate / divisor;
  const int64_t down = from_rate / divisor;
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t made = std::max<int64_t>(1, count * up / down);
  // Of the lower rate a little less than half passes: the rest is the filter's slope.
  const double cutoff = 0.95 * std::min(1.0, static_cast<double>(up) / static_cast<double>(down));
  const double reach = kZeroCrossings / cutoff;
  const double scale = 1.0 / bessel0(kKaiserBeta);
  std::vector<float> out(static_cast<size_t>(made));
  for (int64_t i = 0; i < made; ++i) {
    const double at = static_cast<double>(i * down) / static_cast<double>(up);
    const auto first = static_cast<int64_t>(std::ceil(at - reach));
    const auto last = static_cast<int64_t>(std::floor(at + reach));
    double sum = 0.0;
    for (int64_t k = std::max<int64_t>(first, 0); k <= std::min(last, count - 1); ++k) {
      const double away = at - static_cast<double>(k);
      const double part = away / reach;
      const double window = bessel0(kKaiserBeta * std::sqrt(std::max(0.0, 1.0 - part * part)));
      sum +=
          double{samples[static_cast<size_t>(k)]} * cutoff * sinc(cutoff * away) * window * scale;
    }
    out[static_cast<size_t>(i)] = static_cast<float>(sum);
  }
  return out;
}

}  // namespace pelton::audio
