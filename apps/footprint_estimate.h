// What a model will take here, before any weight is read: of a folder, a hub id, a published shape
// by name or a config.json.
#pragma once

#include <string>

#include "base/result.h"
#include "cost_model/footprint.h"

namespace pelton::apps {

struct FootprintEstimate {
  cost_model::Footprint footprint;
  // `serve` will pack these weights when it first loads them, and choose their form by measuring:
  // until then the footprint is that of the files as they lie.
  bool will_be_packed = false;
};

// The configuration of such a model. Errors: the same.
Result<families::ModelConfig> planned_config(const std::string& model);

Result<FootprintEstimate> estimate_footprint(const std::string& model,
                                             const cost_model::MemoryRequest& request);

}  // namespace pelton::apps
