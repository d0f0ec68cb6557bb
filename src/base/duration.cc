#include "base/duration.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace pelton::base {
namespace {

// Longer ones first: "ms" is not "m".
constexpr std::pair<std::string_view, double> kUnits[] = {
    {"ns", 1.0}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};

// Digits with at most one dot among them; charconv alone would take "1e3", "inf" and a sign.
size_t number_size(std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  return end == std::string_view::npos ? text.size() : end;
}

// The number and unit that `text` begins with, taken off it.
std::optional<double> take_part(std::string_view& text) {
  const size_t size = number_size(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + size, number);
  if (error != std::errc() || end != text.data() + size) return std::nullopt;
  text.remove_prefix(size);
  for (const auto& [unit, ns] : kUnits) {
    if (!text.starts_with(unit)) continue;
    text.remove_prefix(unit.size());
    return number * ns;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_duration_ns(std::string_view text) {
  constexpr double kMost = 9.2e18;
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return 0;
  if (text.empty()) return std::nullopt;
  double sum = 0;
  while (!text.empty()) {
    const std::optional<double> part = take_part(text);
    if (!part) return std::nullopt;
    sum += *part;
    if (!(sum <= kMost)) return std::nullopt;
  }
  return std::llround(is_negative ? -sum : sum);
}

}  // namespace pelton::base
