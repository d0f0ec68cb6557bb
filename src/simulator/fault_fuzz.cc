// Fault files are foreign bytes: an Error at worst.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "simulator/fault.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> json = Json::parse(text);
  if (json.ok()) (void)simulator::parse_faults(*json, {.replicas = 4}, "fuzz");
  return 0;
}
