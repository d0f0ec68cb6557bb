#include "gateway/prediction_bias.h"

#include <algorithm>
#include <cmath>

namespace pelton::gateway {

double PredictionBias::mixed(double before, double ratio) {
  return before * std::pow(ratio / before, kNewestShare);
}

void PredictionBias::note(double ratio, double typical, int64_t now_ns) {
  value_ = mixed(at(typical, now_ns), ratio);
  at_ns_ = now_ns;
}

double PredictionBias::at(double typical, int64_t now_ns) const {
  if (value_ == 0) return typical;
  const double age = static_cast<double>(now_ns - at_ns_) / kFadesNs;
  return typical * std::pow(value_ / typical, std::exp2(-std::max(age, 0.0)));
}

}  // namespace pelton::gateway
