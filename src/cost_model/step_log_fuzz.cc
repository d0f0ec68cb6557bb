// Step logs and calibrations are foreign bytes: an Error at worst.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cost_model/calibration.h"
#include "cost_model/hardware.h"
#include "cost_model/parameters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)cost_model::parse_step_log(text, "fuzz", {0, 128});
  const Result<Json> json = Json::parse(text);
  if (!json.ok()) return 0;
  (void)cost_model::Calibration::from_json(*json, "fuzz");
  (void)cost_model::parse_hardware(*json, "fuzz");
  const Result<families::ModelConfig> shape = families::parse_planned_config(*json, "fuzz");
  if (shape.ok()) (void)cost_model::count_parameters(*shape);
  return 0;
}
