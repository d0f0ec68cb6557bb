// Foreign bytes as what an API server says of a service's endpoints.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/endpoint_slice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const SliceTarget target{.pool = "box", .port = "fleet"};
  if (const auto list = parse_slice_list(bytes, target); list.ok()) {
    for (const EndpointSlice& slice : list->slices) {
      for (const WorkerConfig& worker : slice.workers) CHECK(worker.port > 0);
    }
  }
  if (const auto event = parse_slice_event(bytes, target); event.ok()) {
    CHECK(event->kind != SliceEvent::Kind::kPut || !event->slice.name.empty());
  }
  return 0;
}
