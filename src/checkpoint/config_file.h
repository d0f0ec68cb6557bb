// A model folder's config.json and generation_config.json.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "families/registry.h"

namespace pelton::checkpoint {

// Reads FOLDER/config.json and, if there, generation_config.json. Errors: kNotFound,
// kBadCheckpoint, kUnsupported.
Result<families::ModelConfig> read_model_config(
    const std::string& folder, const families::Registry& registry = families::Registry::built_in());

// `folder`'s config.json in Hugging Face's words, whichever of the two layouts it is in.
Result<Json> read_config_json(const std::string& folder);

}  // namespace pelton::checkpoint
