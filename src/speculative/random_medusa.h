// Medusa heads of random weights in FasterDecoding's layout: for tests, and to measure what
// guessing costs where no trained heads can be had. Their guesses are worth nothing. Pure but for
// the files.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::speculative {

// config.json of three heads of one block, with the target's output head.
Json random_medusa_config(const Json& target_config);

// Makes `folder` and writes config.json and model.safetensors. The same seed, the same bytes.
// Errors: kIo; those of parse_medusa_config.
Result<void> write_random_medusa(const Json& config, const families::ModelConfig& target,
                                 uint64_t seed, const std::string& folder);

}  // namespace pelton::speculative
