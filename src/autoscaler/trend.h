// A straight line through the last five minutes of a rate, used where it explains them: the
// forecast of a load that climbs. Least squares over samples of 5 s.
//
// Example: 2, 2.1, 2.2 ... a second every 5 s is a slope of 0.02 / s; 60 s ahead the rate is 1.2
// more. A flat and noisy rate has a slope within its noise, and no forecast. Pure; one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

class Trend {
 public:
  // At any pace; a sample is the mean of what was noted in its 5 s.
  void note(double rate, int64_t now_ns);
  // The rate `seconds` ahead, between the last one and twice that; none: it does not climb, or not
  // beyond its noise.
  std::optional<double> ahead(double seconds) const;

  void save(base::JsonWriter& w) const;
  void load(StateReader state);

 private:
  static constexpr int64_t kSample_ns = 5'000'000'000;
  static constexpr size_t kSamples = 60;
  struct Sample {
    int64_t index = 0;
    double sum = 0;
    int count = 0;
    double mean() const { return sum / count; }
  };
  std::deque<Sample> samples_;
};

}  // namespace pelton::autoscaler
