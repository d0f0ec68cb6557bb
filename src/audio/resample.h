// Samples at another rate: by a windowed sinc that ends below the lower of the two rates' halves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pelton::audio {

// One recording, in pieces as they come: what comes out is the same whatever the pieces. Keeps the
// filter's reach of samples, no more. One thread.
class Resampler {
 public:
  Resampler(int from_rate, int to_rate);

  // Appends what is known by now to `out`.
  void push(std::span<const float> samples, std::vector<float>& out);
  // There is silence behind the last sample. As many samples have come out as make the same time,
  // rounded down, one at least of any.
  void finish(std::vector<float>& out);

 private:
  // Outputs below `end` whose samples are all there.
  void make(int64_t end, std::vector<float>& out);
  double weight(double away) const;

  int64_t up_ = 1;  // from_rate / to_rate = down / up, in lowest terms
  int64_t down_ = 1;
  double cutoff_ = 1.0;  // of the lower rate a little less than half passes
  double reach_ = 0.0;   // of the filter on either side, in samples
  // Where there are few phases (of 44.1 kHz there are 160), the weights of each: (up, taps).
  // Otherwise the filter's one side, kSteps points to a sample, between which a line is drawn.
  std::vector<double> phases_;
  std::vector<double> side_;
  int64_t taps_ = 0;

  std::vector<float> kept_;  // samples from kept_begin_ on
  int64_t kept_begin_ = 0;
  int64_t taken_ = 0;  // samples in all
  int64_t made_ = 0;
};

// As many samples as make the same time, rounded down, one at least of any. The same rate: a copy.
std::vector<float> resample(std::span<const float> samples, int from_rate, int to_rate);

}  // namespace pelton::audio
