// How long replicas took to start, by what they waited for: a machine and their process, then their
// model. A value; telemetry's histogram, as it is read.
#pragma once

#include <cstddef>
#include <vector>

#include "telemetry/histogram.h"

namespace pelton::launch {

class StartSeconds {
 public:
  // From a process of this machine to a queue of two hours.
  static const std::vector<double>& bounds() {
    static const std::vector<double> kBounds = {0.1, 0.2, 0.5, 1,   2,    5,    10,   20,
                                                50,  100, 200, 500, 1000, 2000, 5000, 10'000};
    return kBounds;
  }

  // From its order until it listens, and from then on until it is ready.
  void note(double order_s, double load_s) {
    add(order_s, order_);
    add(load_s, load_);
  }
  const telemetry::Histogram::Reading& order() const { return order_; }
  const telemetry::Histogram::Reading& load() const { return load_; }

 private:
  static telemetry::Histogram::Reading none() {
    return {.up_to = std::vector<int64_t>(bounds().size() + 1), .sum = 0};
  }
  static void add(double seconds, telemetry::Histogram::Reading& reading) {
    for (size_t i = 0; i < bounds().size(); ++i) {
      if (seconds <= bounds()[i]) ++reading.up_to[i];
    }
    ++reading.up_to.back();
    reading.sum += seconds;
  }

  telemetry::Histogram::Reading order_ = none();
  telemetry::Histogram::Reading load_ = none();
};

}  // namespace pelton::launch
