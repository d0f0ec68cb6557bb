// Foreign bytes as what an API server says of a service's endpoints.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/endpoint_slice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const SliceTarget target{.pool = "box", .port = "fleet"};
  const pelton::Result<pelton::Json> json = pelton::Json::parse(bytes);
  if (!json.ok()) return 0;
  if (const auto slice = parse_endpoint_slice(*json, target); slice.ok()) {
    CHECK(!slice->name.empty());
    for (const WorkerConfig& worker : slice->workers) CHECK(worker.port > 0);
  }
  return 0;
}
