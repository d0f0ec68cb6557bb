// Foreign bytes as a compiled time zone.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "base/time_zone.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::base;
  const auto zone = parse_time_zone({reinterpret_cast<const char*>(data), size});
  if (!zone.ok()) return 0;
  constexpr int kDay_s = 86'400;
  int64_t last_s = TimeZone::kBegin_s;
  int offset_s = zone->offset_s;
  for (const TimeZone::Change& one : zone->changes) {
    CHECK(one.at_s > last_s && one.offset_s != offset_s);
    CHECK(std::abs(one.offset_s) <= 2 * kDay_s);
    CHECK(zone->offset_at(one.at_s) == one.offset_s);
    CHECK(zone->offset_at(one.at_s - 1) == offset_s);
    last_s = one.at_s;
    offset_s = one.offset_s;
  }
  return 0;
}
