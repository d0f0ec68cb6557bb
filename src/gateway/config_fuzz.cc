// Any text is a configuration or is refused with the file's name and a line.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_gateway_config(text, "f", {.allows_empty = true});
  if (!config.ok()) {
    CHECK(config.error().message.starts_with("f:"));
    return 0;
  }
  CHECK(config->port >= 0 && config->port <= 65535);
  for (const WorkerConfig& worker : config->workers) CHECK(worker.port > 0);
  return 0;
}
