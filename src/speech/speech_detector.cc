#include "speech/speech_detector.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pelton::speech {
namespace {

double power_of(double threshold) {
  const double decibels = -60.0 + 40.0 * threshold;
  return std::pow(10.0, decibels / 10.0);
}

}  // namespace

SpeechDetector::SpeechDetector(const Options& options, bool speaks)
    : options_(options), power_min_(power_of(options.threshold)), speaks_(speaks) {}

SpeechDetector::Change SpeechDetector::push(std::span<const float> frame) {
  double sum = 0.0;
  for (const float sample : frame) sum += double{sample} * sample;
  const bool is_loud = sum >= power_min_ * static_cast<double>(frame.size());
  others_ = is_loud == speaks_ ? 0 : others_ + 1;
  const int needed =
      speaks_ ? std::max(1, options_.silence_duration_ms / kFrameMs) : int{kLoudFrames};
  if (others_ < needed) return Change::kNone;
  others_ = 0;
  speaks_ = !speaks_;
  return speaks_ ? Change::kBegins : Change::kEnds;
}

void SpeechDetector::reset() {
  speaks_ = false;
  others_ = 0;
}

}  // namespace pelton::speech
