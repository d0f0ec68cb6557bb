// Whisper's front end: the logarithm of a mel spectrogram of 16 kHz sound, 100 frames a second.
// Arithmetic in double. Immutable once made; any thread.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace pelton::audio {

class LogMel {
 public:
  static constexpr int kSampleRate = 16'000;
  static constexpr int kWindow = 400;  // samples of a frame: 25 ms
  static constexpr int kHop = 160;     // from one frame to the next: 10 ms
  static constexpr int kBins = kWindow / 2 + 1;

  // `bands`: 80, or 128 (large-v3 and turbo).
  explicit LogMel(int bands);

  int bands() const { return bands_; }

  // float (bands, frames), frames = samples / kHop. Frame t is centred at sample t * kHop, and what
  // it sees beyond either end is mirrored there: so there are kWindow / 2 + 1 samples at least.
  std::vector<float> of(std::span<const float> samples) const;
  // The same as long as `go_on`, which is asked each few seconds of sound, says yes; what is there
  // when it says no has no meaning.
  std::vector<float> of_while(std::span<const float> samples,
                              const std::function<bool()>& go_on) const;

 private:
  // The power of each frequency of one frame.
  void power(std::span<const float> samples, int64_t centre, double* bins) const;
  // The Fourier transform of samples[0], samples[step], ...: `count` of them.
  void transform(const double* samples, int step, int count, std::complex<double>* out) const;

  const int bands_;
  std::vector<double> window_;   // periodic Hann
  std::vector<double> cosines_;  // (kWindow): of 2 pi i / kWindow
  std::vector<double> sines_;
  std::vector<double> filters_;                     // (bands, kBins)
  std::vector<std::pair<size_t, size_t>> reaches_;  // by band: the bins that its filter sees
};

}  // namespace pelton::audio
