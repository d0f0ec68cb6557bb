// Foreign bytes as a worker's record in a registry: what is taken can be written and taken again,
// as the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cluster/registration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::cluster;
  const auto got = decode_registration({reinterpret_cast<const char*>(data), size});
  if (!got.ok()) return 0;
  const auto again = decode_registration(encode(*got));
  CHECK(again.ok());
  CHECK(*again == *got);
  return 0;
}
