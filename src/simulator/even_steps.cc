#include "simulator/even_steps.h"

#include "cost_model/hardware.h"
#include "cost_model/parameters.h"

namespace pelton::simulator {

Result<cost_model::StepTimeModel> even_steps(double step_s) {
  TRY_ASSIGN(cost_model::Hardware hardware, cost_model::find_hardware("h100"));
  hardware.bytes_per_second = 1e18;
  hardware.rates[cost_model::Arithmetic::kBf16] = 1e30;
  TRY_ASSIGN(const families::ModelConfig shape, cost_model::find_model_config("gpt-oss-20b"));
  return cost_model::StepTimeModel::make(
      {.hardware = hardware,
       .shape = shape,
       .efficiency = {.bandwidth = 1, .compute = 1, .attention = 1, .step_s = step_s}});
}

}  // namespace pelton::simulator
