// Means and percentiles as numpy computes them: linear between the two nearest ranks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::report {

// `sorted` rises. 0 where it is empty; `percent` from 0 to 100.
double percentile(std::span<const double> sorted, double percent);
double mean(std::span<const double> values);                // 0 where there are none
double standard_deviation(std::span<const double> values);  // of the population, as numpy.std

// "50,99.9": numbers from 0 to 100. `field` is named in errors.
Result<std::vector<double>> parse_percents(std::string_view text, const std::string& field);
// 99 -> "99", 99.9 -> "99.9": as they stand in labels and keys.
std::string percent_word(double percent);

}  // namespace pelton::report
