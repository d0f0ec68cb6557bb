#include "autoscaler/trend.h"

#include <algorithm>
#include <cmath>

namespace pelton::autoscaler {

void Trend::note(double rate, int64_t now_ns) {
  const int64_t index = now_ns / kSample_ns;
  if (samples_.empty() || samples_.back().index != index) samples_.push_back({.index = index});
  samples_.back().sum += rate;
  ++samples_.back().count;
  while (samples_.size() > kSamples ||
         samples_.front().index <= index - static_cast<int64_t>(kSamples)) {
    samples_.pop_front();
  }
}

std::optional<double> Trend::ahead(double seconds) const {
  constexpr size_t kFewest = 12;      // a minute
  constexpr double kBeyondNoise = 3;  // times the residuals' deviation
  constexpr double kStep_s = kSample_ns * 1e-9;
  if (samples_.size() < kFewest) return std::nullopt;
  const auto count = static_cast<double>(samples_.size());
  double mean_t = 0;
  double mean_rate = 0;
  for (const Sample& one : samples_) {
    mean_t += static_cast<double>(one.index - samples_.front().index) * kStep_s / count;
    mean_rate += one.mean() / count;
  }
  double covariance = 0;
  double variance = 0;
  for (const Sample& one : samples_) {
    const double t = static_cast<double>(one.index - samples_.front().index) * kStep_s - mean_t;
    covariance += t * (one.mean() - mean_rate);
    variance += t * t;
  }
  const double slope = covariance / variance;
  double squares = 0;
  for (const Sample& one : samples_) {
    const double t = static_cast<double>(one.index - samples_.front().index) * kStep_s - mean_t;
    const double off = one.mean() - mean_rate - slope * t;
    squares += off * off;
  }
  const double deviation = std::sqrt(squares / (count - 2));
  const double climbed = slope * kStep_s * (count - 1);
  if (slope <= 0 || climbed <= kBeyondNoise * deviation) return std::nullopt;
  const double last = mean_rate + climbed / 2;
  return std::min(last + slope * seconds, 2 * last);
}

void Trend::save(base::JsonWriter& w) const {
  w.begin_object().key("samples").begin_array();
  for (const Sample& one : samples_) {
    w.begin_object().key("index").integer(one.index).key("sum");
    write_exact(w, one.sum);
    w.key("count").integer(one.count).end_object();
  }
  w.end_array().end_object();
}

void Trend::load(StateReader state) {
  samples_.clear();
  state.each("samples", kSamples, [&](StateReader one) {
    const int64_t index = one.time("index");
    const int count = one.count("count");
    // They are in order, and none is empty.
    if (count == 0 || (!samples_.empty() && index <= samples_.back().index)) return one.fail();
    samples_.push_back({.index = index, .sum = one.number("sum"), .count = count});
  });
}

}  // namespace pelton::autoscaler
