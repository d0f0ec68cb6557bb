// Any bytes as a file of torch.save(), and as its pickle alone: tensors that lie inside the file,
// or an Error.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "checkpoint/torch_file.h"
#include "checkpoint/torch_pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const auto check_error = [](const Error& error) {
    CHECK(error.code == ErrorCode::kBadCheckpoint || error.code == ErrorCode::kUnsupported);
    CHECK(error.message.size() < 1000);
  };
  const std::span<const uint8_t> bytes(data, size);
  const auto pickled = checkpoint::read_torch_pickle(bytes, "fuzz");
  if (!pickled.ok()) check_error(pickled.error());
  const auto tensors = checkpoint::parse_torch_file(bytes, "fuzz");
  if (!tensors.ok()) {
    check_error(tensors.error());
    return 0;
  }
  for (const checkpoint::StoredTensor& tensor : *tensors) {
    CHECK(tensor.begin <= tensor.end && tensor.end <= size);
    uint64_t count = tensor::dtype_bytes(tensor.dtype);
    for (const int64_t length : tensor.shape) count *= static_cast<uint64_t>(length);
    CHECK(count == tensor.end - tensor.begin);
  }
  return 0;
}
