#include "apps/variations.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::apps {
namespace {

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = std::min(text.find(at), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Result<std::vector<Variation>> read_variations(const std::vector<std::string>& texts,
                                               const std::string& example,
                                               size_t combinations_max) {
  std::vector<Variation> variations;
  size_t combinations = 1;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--vary {} is not like {}", text, example), "vary"};
    }
    Variation one{.key = text.substr(0, equals), .values = split(text.substr(equals + 1), ',')};
    if (std::ranges::find(variations, one.key, &Variation::key) != variations.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--vary has {} twice; give all its values at once", one.key),
                   "vary"};
    }
    combinations *= one.values.size();
    if (combinations > combinations_max) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--vary: more than {} combinations", combinations_max), "vary"};
    }
    variations.push_back(std::move(one));
  }
  return variations;
}

size_t combination_count(const std::vector<Variation>& variations) {
  size_t count = 1;
  for (const Variation& one : variations) count *= one.values.size();
  return count;
}

Settings combination(const std::vector<Variation>& variations, size_t number) {
  Settings settings;
  for (const Variation& one : variations) {
    settings.emplace_back(one.key, one.values[number % one.values.size()]);
    number /= one.values.size();
  }
  return settings;
}

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

}  // namespace pelton::apps
