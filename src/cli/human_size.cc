#include "cli/human_size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace pelton::cli {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKibi = 1024.0;
constexpr std::array<Unit, 15> kUnits{{
    {"", 1},
    {"B", 1},
    {"K", kKibi},
    {"M", kKibi* kKibi},
    {"G", kKibi* kKibi* kKibi},
    {"T", kKibi* kKibi* kKibi* kKibi},
    {"KiB", kKibi},
    {"MiB", kKibi* kKibi},
    {"GiB", kKibi* kKibi* kKibi},
    {"TiB", kKibi* kKibi* kKibi* kKibi},
    {"k", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
}};

std::optional<double> unit_factor(std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit.factor;
  }
  return std::nullopt;
}

}  // namespace

Result<int64_t> parse_size(std::string_view text) {
  return parse_size(text, 1);
}

Result<int64_t> parse_size(std::string_view text, double bare_unit) {
  double number = 0;
  const auto [rest, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const auto wrong = [&] {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not a size such as 4096, 32K or 4GiB", text)};
  };
  if (failure != std::errc{} || number < 0) return wrong();
  std::string_view unit = text.substr(static_cast<size_t>(rest - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const std::optional<double> factor = unit_factor(unit);
  if (!factor) return wrong();
  const bool is_bare = unit.empty();
  const double product = number * *factor * (is_bare ? bare_unit : 1);
  if (!(product < 9.2e18)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is too large", text)};
  }
  const bool is_count = *factor == 1 && (!is_bare || bare_unit == 1);
  if (is_count && product != std::floor(product)) return wrong();
  return static_cast<int64_t>(std::llround(product));
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{:.{}f} {}", bytes, bytes < 100 ? 1 : 0, kNames[unit]);
}

std::string format_count(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const size_t first = digits.front() == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string format_duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace pelton::cli
