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
constexpr int64_t kPhasesMax = 1280;  // of 11.025 kHz there are 640
constexpr int64_t kSteps = 4096;      // of the one side's table, to a zero crossing

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

// The filter's weight of a sample that is `away` from the output, both in input samples.
double filter(double away, double cutoff, double reach) {
  const double part = away / reach;
  if (std::abs(part) > 1.0) return 0.0;
  const double window = bessel0(kKaiserBeta * std::sqrt(std::max(0.0, 1.0 - part * part)));
  return cutoff * sinc(cutoff * away) * window / bessel0(kKaiserBeta);
}

}  // namespace

Resampler::Resampler(int from_rate, int to_rate) {
  CHECK(from_rate > 0 && to_rate > 0);
  const int64_t divisor = std::gcd(from_rate, to_rate);
  up_ = to_rate / divisor;
  down_ = from_rate / divisor;
  if (up_ == down_) return;
  cutoff_ = 0.95 * std::min(1.0, static_cast<double>(up_) / static_cast<double>(down_));
  reach_ = kZeroCrossings / cutoff_;
  taps_ = 2 * static_cast<int64_t>(std::ceil(reach_)) + 1;
  if (up_ <= kPhasesMax) {
    phases_.reserve(static_cast<size_t>(up_ * taps_));
    for (int64_t phase = 0; phase < up_; ++phase) {
      const double part = static_cast<double>(phase) / static_cast<double>(up_);
      for (int64_t k = 0; k < taps_; ++k) {
        phases_.push_back(filter(part - static_cast<double>(k - taps_ / 2), cutoff_, reach_));
      }
    }
    return;
  }
  for (int64_t i = 0; i <= kZeroCrossings * kSteps + 1; ++i) {
    side_.push_back(
        filter(static_cast<double>(i) / static_cast<double>(kSteps) / cutoff_, cutoff_, reach_));
  }
}

double Resampler::weight(double away) const {
  const double at = std::abs(away) * cutoff_ * static_cast<double>(kSteps);
  const auto point = static_cast<size_t>(at);
  if (point + 1 >= side_.size()) return 0.0;
  const double part = at - static_cast<double>(point);
  return side_[point] + part * (side_[point + 1] - side_[point]);
}

void Resampler::make(int64_t end, std::vector<float>& out) {
  const int64_t half = taps_ / 2;
  for (; made_ < end; ++made_) {
    const int64_t centre = made_ * down_ / up_;
    const int64_t phase = made_ * down_ % up_;
    const int64_t first = std::max(centre - half, kept_begin_);
    const int64_t last =
        std::min(centre + half, kept_begin_ + static_cast<int64_t>(kept_.size()) - 1);
    double sum = 0.0;
    if (side_.empty()) {
      const double* const weights = phases_.data() + phase * taps_;
      for (int64_t k = first; k <= last; ++k) {
        sum += double{kept_[static_cast<size_t>(k - kept_begin_)]} * weights[k - centre + half];
      }
    } else {
      const double part = static_cast<double>(phase) / static_cast<double>(up_);
      for (int64_t k = first; k <= last; ++k) {
        sum += double{kept_[static_cast<size_t>(k - kept_begin_)]} *
               weight(part + static_cast<double>(centre - k));
      }
    }
    out.push_back(static_cast<float>(sum));
  }
}

void Resampler::push(std::span<const float> samples, std::vector<float>& out) {
  taken_ += static_cast<int64_t>(samples.size());
  if (up_ == down_) {
    out.insert(out.end(), samples.begin(), samples.end());
    made_ = taken_;
    return;
  }
  kept_.insert(kept_.end(), samples.begin(), samples.end());
  // Output i needs samples up to i * down / up + half.
  const int64_t half = taps_ / 2;
  const int64_t known = taken_ - half;
  if (known > 0) make(std::max(made_, (known * up_ - 1) / down_), out);
  const int64_t needed = std::max<int64_t>(made_ * down_ / up_ - half, kept_begin_);
  const int64_t gone = std::min<int64_t>(needed - kept_begin_, static_cast<int64_t>(kept_.size()));
  // Not for a few samples each time.
  if (gone < static_cast<int64_t>(kept_.size()) / 2) return;
  kept_.erase(kept_.begin(), kept_.begin() + gone);
  kept_begin_ += gone;
}

void Resampler::finish(std::vector<float>& out) {
  if (taken_ == 0 || up_ == down_) return;
  make(std::max<int64_t>(1, taken_ * up_ / down_), out);
}

std::vector<float> resample(std::span<const float> samples, int from_rate, int to_rate) {
  if (from_rate == to_rate || samples.empty()) return {samples.begin(), samples.end()};
  Resampler resampler(from_rate, to_rate);
  std::vector<float> out;
  const auto made = static_cast<int64_t>(samples.size()) * to_rate / from_rate;
  out.reserve(static_cast<size_t>(made + 1));
  resampler.push(samples, out);
  resampler.finish(out);
  return out;
}

}  // namespace pelton::audio
