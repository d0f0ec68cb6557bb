// A machine on which every step takes as long, whatever it holds: of load alone.
#pragma once

#include "base/result.h"
#include "cost_model/step_time.h"

namespace pelton::simulator {

// Errors: of a `step_s` that is no time.
Result<cost_model::StepTimeModel> even_steps(double step_s);

}  // namespace pelton::simulator
