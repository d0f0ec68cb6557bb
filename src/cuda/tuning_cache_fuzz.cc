// Any bytes as a kept table of configs: refused, or a table that the device can take and that is
// written and read again as the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cuda/tuning_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::cuda;  // NOLINT
  const ModelShape shape{.layers = 2,
                         .hidden = 128,
                         .inner = 128,
                         .heads = 8,
                         .kv_heads = 1,
                         .head_size = 64,
                         .experts = 8,
                         .choices = 2,
                         .vocab = 512};
  constexpr KernelDevice kDevice = {64 << 10, true};
  const TuningKey key{"fuzz", "9.0", 13000, 13000, "cuda", "tiny"};
  const auto configs =
      parse_tuning({reinterpret_cast<const char*>(data), size}, key, shape, kDevice);
  if (!configs.ok()) return 0;
  CHECK(are_usable(shape, *configs, kDevice));
  const auto again = parse_tuning(tuning_text(key, *configs), key, shape, kDevice);
  CHECK(again.ok() && *again == *configs);
  return 0;
}
