// An EAGLE-3 head of random weights in the published layout: for tests, and to measure what
// guessing costs where no trained head can be had. Its guesses are worth nothing. Pure but for the
// files.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::speculative {

// config.json of a head like those published for gpt-oss: the target's heads and rotary, an MLP of
// six times its width, a draft vocabulary of at most 32 000.
Json random_eagle3_config(const Json& target_config);

// Makes `folder` and writes config.json and model.safetensors. The same seed, the same bytes. An
// "embed_tokens": true in `config` gives it an embedding of its own. Errors: kIo; those of
// parse_eagle3_config.
Result<void> write_random_eagle3(const Json& config, const families::ModelConfig& target,
                                 uint64_t seed, const std::string& folder);

}  // namespace pelton::speculative
