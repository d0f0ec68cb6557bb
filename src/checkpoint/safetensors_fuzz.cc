// Any bytes as a safetensors file: tensors that lie inside it without overlap, or an Error.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<std::vector<checkpoint::StoredTensor>> tensors =
      checkpoint::parse_safetensors(std::span<const uint8_t>(data, size), "fuzz");
  if (!tensors.ok()) {
    CHECK(tensors.error().code == ErrorCode::kBadCheckpoint);
    CHECK(tensors.error().message.size() < 1000);
    return 0;
  }
  uint64_t end = 0;
  for (const checkpoint::StoredTensor& tensor : *tensors) {
    CHECK(tensor.begin <= tensor.end && tensor.end <= size && (end == 0 || tensor.begin == end));
    uint64_t bytes = tensor::dtype_bytes(tensor.dtype);
    for (const int64_t length : tensor.shape) bytes *= static_cast<uint64_t>(length);
    CHECK(bytes == tensor.end - tensor.begin);
    end = tensor.end;
  }
  return 0;
}
