// What a model will take here, before any weight is read: of a folder, a hub id, a published shape
// by name or a config.json.
#pragma once

#include <string>

#include "base/result.h"
#include "cost_model/footprint.h"

namespace pelton::apps {

// The configuration of a model that is named in one of these ways. Errors: as below.
Result<families::ModelConfig> planned_config(const std::string& model);

Result<cost_model::Footprint> estimate_footprint(const std::string& model,
                                                 const cost_model::MemoryRequest& request);

// With --weights int8. Errors besides: kUnsupported, a model that is not packed.
Result<cost_model::Footprint> estimate_packed_footprint(const std::string& model,
                                                        const cost_model::MemoryRequest& request);

}  // namespace pelton::apps
