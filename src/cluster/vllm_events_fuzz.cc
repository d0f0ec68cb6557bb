// Foreign bytes as a batch of a vLLM worker's KV events.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cluster/vllm_events.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::cluster;
  const auto events = parse_vllm_batch({reinterpret_cast<const char*>(data), size});
  if (!events.ok()) return 0;
  for (const VllmEvent& event : *events) {
    if (event.kind != VllmEvent::Kind::kStored) continue;
    CHECK(event.block_tokens > 0);
    CHECK(event.tokens.size() == event.hashes.size() * static_cast<size_t>(event.block_tokens));
  }
  return 0;
}
