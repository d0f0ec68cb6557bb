#include "report/percentile.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace pelton::report {

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(
      std::clamp(std::floor(rank), 0.0, static_cast<double>(sorted.size() - 1)));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = rank - static_cast<double>(below);
  return sorted[below] + (sorted[above] - sorted[below]) * share;
}

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.empty()) return 0;
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

Result<std::vector<double>> parse_percents(std::string_view text, const std::string& field) {
  std::vector<double> percents;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    double percent = 0;
    const char* const end_wanted = text.data() + comma;
    const auto [end, failure] = std::from_chars(text.data() + at, end_wanted, percent);
    if (failure != std::errc{} || end != end_wanted || !(percent >= 0 && percent <= 100)) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' wants numbers from 0 to 100, as 50,99.9; not '{}'", field, text),
          field};
    }
    percents.push_back(percent);
    at = comma + 1;
  }
  return percents;
}

std::string percent_word(double percent) {
  return fmt::format("{}", percent);
}

}  // namespace pelton::report
