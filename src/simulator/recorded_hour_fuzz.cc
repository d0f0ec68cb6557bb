// Foreign bytes as a file of recorded facts: an hour whose requests come in order, or an Error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "simulator/recorded_hour.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto hour = simulator::read_recorded_hour(text, "f", "", 0);
  if (!hour.ok()) return 0;
  CHECK(std::is_sorted(hour->at_s.begin(), hour->at_s.end()), "an hour that goes back");
  CHECK(hour->at_s.size() == hour->service_s.size(), "a request without its time");
  CHECK(hour->duration_s >= 0 && hour->slots > 0 && hour->replicas >= 0, "an impossible hour");
  return 0;
}
