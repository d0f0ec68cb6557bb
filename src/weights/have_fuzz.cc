// Any text: what a node has, or an error that names its field; what was read is written and read
// alike.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "weights/have.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace weights = pelton::weights;
  constexpr size_t kChunks = 9;
  const auto read = weights::parse_have({reinterpret_cast<const char*>(data), size}, kChunks);
  if (!read.ok()) {
    CHECK(!read.error().field.empty());
    return 0;
  }
  CHECK(read->there.size() == kChunks && read->coming.size() == kChunks);
  const auto again = weights::parse_have(read->to_json(), kChunks);
  CHECK(again.ok() && again->there == read->there && again->coming == read->coming &&
        again->peers == read->peers && again->id == read->id);
  return 0;
}
