// Scenario files are foreign bytes: a scenario, or an Error with the file's name.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "simulator/scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<simulator::Scenario> scenario = simulator::parse_scenario(text, "f");
  if (!scenario.ok()) {
    CHECK(scenario.error().message.starts_with("f:"), "an error without its place");
    return 0;
  }
  CHECK(!scenario->title.empty(), "a scenario without a title");
  if (!scenario->sweep) return 0;
  for (const double value : scenario->sweep->values) CHECK(std::isfinite(value), "no number");
  return 0;
}
