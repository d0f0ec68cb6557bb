#include "cli/flag_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "cli/human_size.h"
#include "cli/wording.h"

namespace pelton::cli {

Result<double> flag_number(const Flag& flag, const std::string& text) {
  double number = 0;
  if (flag.kind == Flag::Kind::kSize) {
    const Result<int64_t> size = parse_size(text, flag.bare_unit);
    if (!size)
      return usage_error(fmt::format("{}: {}", flag.name, size.error().message), flag.name);
    number = static_cast<double>(*size);
  } else {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = number == std::floor(number);
    const bool integer = flag.kind == Flag::Kind::kInteger;
    if (failure != std::errc{} || end != text.data() + text.size() || !std::isfinite(number) ||
        (integer && !whole)) {
      return usage_error(fmt::format("{} wants {}, not '{}'", flag.name,
                                     integer ? "a whole number" : "a number", text),
                         flag.name);
    }
  }
  if (number < flag.least || number > flag.most) {
    return usage_error(
        fmt::format("{} must be between {} and {}, not {}", flag.name, flag.least, flag.most, text),
        flag.name);
  }
  return number;
}

Result<void> check_choice(const Flag& flag, const std::string& text) {
  if (flag.choices.empty()) return {};
  if (std::find(flag.choices.begin(), flag.choices.end(), text) != flag.choices.end()) return {};
  return usage_error(
      fmt::format("{} is one of {}, not '{}'", flag.name, fmt::join(flag.choices, ", "), text),
      flag.name);
}

std::optional<bool> switch_value(std::string_view text) {
  for (const std::string_view on : {"1", "true", "True", "yes", "on"}) {
    if (text == on) return true;
  }
  for (const std::string_view off : {"0", "false", "False", "no", "off"}) {
    if (text == off) return false;
  }
  return std::nullopt;
}

}  // namespace pelton::cli
