// Any bytes as a kept table of forms: refused, or a table that the device can take and that is
// written and read again as the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cuda/form_cache.h"

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
  constexpr FormDevice kDevice = {64 << 10, true};
  const FormKey key{"fuzz", "9.0", 13000, 13000, "cuda", "tiny"};
  const auto forms = parse_forms({reinterpret_cast<const char*>(data), size}, key, shape, kDevice);
  if (!forms.ok()) return 0;
  CHECK(are_usable(shape, *forms, kDevice));
  const auto again = parse_forms(forms_text(key, *forms), key, shape, kDevice);
  CHECK(again.ok() && *again == *forms);
  return 0;
}
