#include "audio/log_mel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "base/check.h"

namespace pelton::audio {
namespace {

// Slaney's mel scale: linear up to 1000 Hz, logarithmic from there on.
constexpr double kLinearHz = 200.0 / 3.0;
constexpr double kBreakHz = 1000.0;
constexpr double kBreakMel = kBreakHz / kLinearHz;
const double kLogStep = std::log(6.4) / 27.0;

double mel_of(double hz) {
  return hz < kBreakHz ? hz / kLinearHz : kBreakMel + std::log(hz / kBreakHz) / kLogStep;
}

double hz_of(double mel) {
  return mel < kBreakMel ? mel * kLinearHz : kBreakHz * std::exp(kLogStep * (mel - kBreakMel));
}

// Triangles of unit area between neighbouring points of the scale.
std::vector<double> mel_filters(int bands) {
  std::vector<double> points(static_cast<size_t>(bands) + 2);
  const double top = mel_of(LogMel::kSampleRate / 2.0);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i] = hz_of(top * static_cast<double>(i) / static_cast<double>(bands + 1));
  }
  std::vector<double> filters(static_cast<size_t>(bands) * LogMel::kBins);
  for (size_t b = 0; b < static_cast<size_t>(bands); ++b) {
    for (size_t k = 0; k < LogMel::kBins; ++k) {
      const double hz = static_cast<double>(k) * LogMel::kSampleRate / LogMel::kWindow;
      const double rising = (hz - points[b]) / (points[b + 1] - points[b]);
      const double falling = (points[b + 2] - hz) / (points[b + 2] - points[b + 1]);
      const double height = 2.0 / (points[b + 2] - points[b]);
      filters[b * LogMel::kBins + k] = std::max(0.0, std::min(rising, falling)) * height;
    }
  }
  return filters;
}

}  // namespace

LogMel::LogMel(int bands) : bands_(bands), filters_(mel_filters(bands)) {
  for (int i = 0; i < kWindow; ++i) {
    const double angle = 2.0 * std::numbers::pi * i / kWindow;
    cosines_.push_back(std::cos(angle));
    sines_.push_back(std::sin(angle));
    window_.push_back(0.5 - 0.5 * std::cos(angle));
  }
  for (size_t b = 0; b < static_cast<size_t>(bands); ++b) {
    const auto begin = filters_.begin() + static_cast<std::ptrdiff_t>(b * kBins);
    const auto is_seen = [](double height) { return height > 0.0; };
    const auto first = std::find_if(begin, begin + kBins, is_seen);
    const auto last = std::find_if_not(first, begin + kBins, is_seen);
    reaches_.emplace_back(first - begin, last - begin);
  }
}

void LogMel::power(std::span<const float> samples, int64_t centre, double* bins) const {
  const auto count = static_cast<int64_t>(samples.size());
  double frame[kWindow];
  bool silent = true;
  for (int i = 0; i < kWindow; ++i) {
    int64_t at = centre - kWindow / 2 + i;
    if (at < 0) at = -at;
    if (at >= count) at = 2 * (count - 1) - at;
    frame[i] = window_[static_cast<size_t>(i)] * double{samples[static_cast<size_t>(at)]};
    silent = silent && frame[i] == 0.0;
  }
  if (silent) {
    std::fill_n(bins, kBins, 0.0);
    return;
  }
  std::complex<double> spectrum[kWindow];
  transform(frame, 1, kWindow, spectrum);
  for (int k = 0; k < kBins; ++k) bins[k] = std::norm(spectrum[k]);
}

// Cooley and Tukey: of 400 samples the even and the odd ones, four times, down to 25.
void LogMel::transform(const double* samples, int step, int count,
                       std::complex<double>* out) const {
  const auto turn = [&](int k) {  // e^(-2 pi i k / count)
    const auto at = static_cast<size_t>(k * (kWindow / count) % kWindow);
    return std::complex<double>(cosines_[at], -sines_[at]);
  };
  if (count % 2 != 0) {
    for (int k = 0; k < count; ++k) {
      out[k] = 0.0;
      for (int i = 0; i < count; ++i) out[k] += samples[i * step] * turn(k * i % count);
    }
    return;
  }
  const int half = count / 2;
  transform(samples, 2 * step, half, out);
  transform(samples + step, 2 * step, half, out + half);
  for (int k = 0; k < half; ++k) {
    const std::complex<double> even = out[k];
    const std::complex<double> odd = turn(k) * out[k + half];
    out[k] = even + odd;
    out[k + half] = even - odd;
  }
}

std::vector<float> LogMel::of(std::span<const float> samples) const {
  return of_while(samples, [] { return true; });
}

std::vector<float> LogMel::of_while(std::span<const float> samples,
                                    const std::function<bool()>& go_on) const {
  constexpr size_t kLook = 512;  // frames
  CHECK(samples.size() > kWindow / 2, "too short to be mirrored");
  const auto frames = static_cast<size_t>(samples.size() / kHop);
  std::vector<float> mel(static_cast<size_t>(bands_) * frames);
  double highest = -1e300;
  double bins[kBins];
  for (size_t t = 0; t < frames; ++t) {
    if (t % kLook == 0 && !go_on()) return mel;
    power(samples, static_cast<int64_t>(t) * kHop, bins);
    for (size_t b = 0; b < static_cast<size_t>(bands_); ++b) {
      double sum = 0.0;
      const auto [first, last] = reaches_[b];
      for (size_t k = first; k < last; ++k) sum += filters_[b * kBins + k] * bins[k];
      const double log = std::log10(std::max(sum, 1e-10));
      mel[b * frames + t] = static_cast<float>(log);
      highest = std::max(highest, log);
    }
  }
  for (float& value : mel) {
    value = static_cast<float>((std::max(double{value}, highest - 8.0) + 4.0) / 4.0);
  }
  return mel;
}

}  // namespace pelton::audio
