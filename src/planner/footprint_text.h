// What a model takes of one machine's memory, part by part, as a person reads it. Pure.
#pragma once

#include <string>

#include "cost_model/footprint.h"

namespace pelton::planner {

// Lines with bars of each part's share; what is not there is left out.
std::string footprint_text(const std::string& model, const cost_model::Footprint& footprint);

}  // namespace pelton::planner
