// What the step models of this room have in common: a roofline's parts, and what a step costs
// whatever is in it. Pure.
#pragma once

#include <cmath>

#include "cost_model/step_cost.h"
#include "cost_model/step_time.h"

namespace pelton::cost_model {

// Up to which share of the longer one the shorter of reading and computing adds nothing: a
// ten-millionth. A simulated fleet takes this way in nearly every step.
inline double negligible_share(const Efficiency& efficiency) {
  return std::exp2(-20 / efficiency.overlap);
}

struct Roofline {
  double bytes_per_second = 0;  // reached
  double rate = 0;              // of the hardware
  double negligible = 0;
};
// weights_s and attention_s of one device's share of a step.
StepTime roofline_parts(const StepCost& cost, const Efficiency& efficiency,
                        const Roofline& roofline);

// What does not depend on layers.
double loose_seconds(const StepLoad& load, const Efficiency& efficiency);

}  // namespace pelton::cost_model
