// Any bytes as a safetensors file: tensors that lie inside it without overlap, or an Error.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tiled_tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<std::vector<checkpoint::StoredTensor>> tensors =
      checkpoint::parse_safetensors(std::span<const uint8_t>(data, size), "fuzz");
  if (!tensors.ok()) {
    CHECK(tensors.error().code == ErrorCode::kBadCheckpoint);
    CHECK(tensors.error().message.size() < 1000);
    return 0;
  }
  CHECK(checkpoint::safetensors_metadata({data, size}, "pelton.tiles").size() < size);
  uint64_t end = 0;
  for (const checkpoint::StoredTensor& tensor : *tensors) {
    CHECK(tensor.begin <= tensor.end && tensor.end <= size && (end == 0 || tensor.begin == end));
    uint64_t bytes = tensor::dtype_bytes(tensor.dtype);
    for (const int64_t length : tensor.shape) bytes *= static_cast<uint64_t>(length);
    CHECK(bytes == tensor.end - tensor.begin);
    // A matrix of tiles has as many bytes as it is stored in.
    if (const auto tiled = checkpoint::tiled_tensor(tensor.name, tensor.dtype, tensor.shape)) {
      uint64_t rows = 1;
      for (size_t i = 0; i + 1 < tiled->shape.size(); ++i) {
        rows *= static_cast<uint64_t>(tiled->shape[i]);
      }
      CHECK(rows * static_cast<uint64_t>(tensor::row_bytes(tiled->dtype, tiled->shape.back())) ==
            bytes);
    }
    end = tensor.end;
  }
  return 0;
}
