// Any bytes are block events or are refused; what is read is written as it came.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cluster/block_events.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view wire(reinterpret_cast<const char*>(data), size);
  const auto events = pelton::cluster::decode_block_events(wire);
  if (events.ok()) CHECK(encode(*events) == wire);
  return 0;
}
