// How a model's makers want it sampled where a request does not say: generation_config.json beside
// its weights. Plain values; what is not there or out of range is left out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace pelton::checkpoint {

struct GenerationDefaults {
  std::optional<double> temperature;  // 0 to 2
  std::optional<double> top_p;        // above 0, to 1
  std::optional<int> top_k;           // 0: all
  std::optional<double> min_p;        // 0 to 1
  std::optional<double> repetition_penalty;
  // Sentences for the log: what stood there and could not be meant.
  std::vector<std::string> warnings;
};

GenerationDefaults parse_generation_defaults(const Json& generation);

// Of the first of these folders that has the file; empty if none does.
GenerationDefaults read_generation_defaults(const std::vector<std::string>& folders);

}  // namespace pelton::checkpoint
