// Any bytes as a capacity file: refused with a line, or needs whose plan keeps what it says.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "capacity/allocation.h"
#include "capacity/availability.h"
#include "capacity/capacity_file.h"
#include "capacity/explanation.h"
#include "capacity/plan_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;            // NOLINT: a program of one file
  using namespace pelton::capacity;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<FleetNeeds> needs = parse_needs(text, "fuzz.toml");
  if (!needs.ok()) {
    CHECK(needs.error().message.starts_with("fuzz.toml:"), needs.error().message);
    return 0;
  }
  const Plan plan = allocate(*needs);
  if (!plan.is_possible()) {
    CHECK(!shortfall_text(plan).empty());
    return 0;
  }
  for (const Placement& one : plan.placements) CHECK(one.replicas > 0);
  constexpr size_t kExplainedMax = 8;
  if (plan.placements.size() > kExplainedMax) return 0;
  const Explanation explanation = explain(*needs, plan);
  CHECK(!plan_text(*needs, plan, &explanation).empty());
  CHECK(plan_json(*needs, plan, &explanation).is_object());
  const Availability found = availability_of(*needs, plan, Standing::kPlanned);
  CHECK(found.downtime_s >= 0 && found.downtime_s <= kMonthSeconds);
  CHECK(!availability_text(*needs, found).empty());
  return 0;
}
