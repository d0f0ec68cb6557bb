// Any text: a manifest or an error that names its field; what was read is written and read alike.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "weights/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace weights = pelton::weights;
  const auto read = weights::parse_manifest({reinterpret_cast<const char*>(data), size});
  if (!read.ok()) {
    CHECK(!read.error().field.empty());
    return 0;
  }
  const auto again = weights::parse_manifest(read->to_json());
  CHECK(again.ok() && *again == *read);
  return 0;
}
