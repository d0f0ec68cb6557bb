// Any bytes as an npy file: an array that is as long as it says, or an Error.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/npy.h"
#include "tensor/tensor_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<tensor::NpyArray> array =
      tensor::parse_npy(std::span<const uint8_t>(data, size), "fuzz");
  if (array.ok()) {
    int64_t count = 1;
    for (const int64_t length : array->shape) count *= length;
    CHECK(count == array->element_count());
  }
  return 0;
}
