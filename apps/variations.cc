#include "apps/variations.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/split.h"

namespace pelton::apps {

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
    const auto values = base::split(std::string_view(text).substr(equals + 1), ',');
    Variation one{.key = text.substr(0, equals), .values = {values.begin(), values.end()}};
    if (std::ranges::find(variations, one.key, &Variation::key) != variations.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--vary has {} twice; give all its values at once", one.key),
                   "vary"};
    }
    for (auto at = one.values.begin(); at != one.values.end(); ++at) {
      if (std::find(one.values.begin(), at, *at) == at) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--vary {} has the value {} twice", one.key, *at), "vary"};
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
