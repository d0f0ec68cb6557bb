// --vary KEY=V,V: values that a sweep tries, and all their combinations. Values, pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::apps {

// A setting, and the values that are tried.
struct Variation {
  std::string key;  // "max-num-seqs"
  std::vector<std::string> values;
};

// `example`: what one looks like, for errors; `combinations_max`: of all together. Errors:
// kInvalidArgument.
Result<std::vector<Variation>> read_variations(const std::vector<std::string>& texts,
                                               const std::string& example, size_t combinations_max);

size_t combination_count(const std::vector<Variation>& variations);
// The settings of the combination with that number, keys with values.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings combination(const std::vector<Variation>& variations, size_t number);
// "max-num-seqs=16 kv-cache-dtype=int8".
std::string settings_text(const Settings& settings);

}  // namespace pelton::apps
