// Whether a GGUF file would be read as the model that it is written of: GGUF says less than
// config.json, and what it cannot say must not be left out in silence. Pure; any thread.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/gguf.h"
#include "families/model_config.h"

namespace pelton::checkpoint {

// `header`: what config_to_gguf wrote of `config_json`, which `config` was read from. Error
// kUnsupported: the first property that would be lost.
Result<void> check_gguf_says_all(const Json& config_json, const families::ModelConfig& config,
                                 const GgufHeader& header);

}  // namespace pelton::checkpoint
