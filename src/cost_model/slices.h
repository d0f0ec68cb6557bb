// A distribution as 50 numbers: what was measured, sorted and cut in equal slices, the mean of
// each. To draw one of them is right on average and in its spread; between quantiles a single late
// step would weigh as much as a slice. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::cost_model {

inline constexpr int kSlices = 50;

// Nothing of nothing.
std::vector<double> slices_of(std::vector<double> measured);

// The same of values that count for more than others: each slice has the same weight, and the mean
// of all is the weighted one. Weights are above 0.
struct Weighted {
  double value = 0;
  double weight = 1;
};
std::vector<double> weighted_slices_of(std::vector<Weighted> measured);

// `unit`: from 0 to less than 1. Of no slices 1: factors that change nothing.
inline double draw(const std::vector<double>& slices, double unit) {
  if (slices.empty()) return 1;
  return slices[static_cast<size_t>(unit * static_cast<double>(slices.size()))];
}

Json slices_json(const std::vector<double>& slices);
// Empty where `json` has no such key. kBadConfig.
Result<std::vector<double>> read_slices(const Json& json, const std::string& name,
                                        const std::string& origin);

}  // namespace pelton::cost_model
