// The safetensors container: a JSON header that names tensors, then their bytes. Reading checks
// every number before use, in one pass and with memory bounded by kTensorsMax, whatever the bytes
// are; it keeps the reference library's rules (no holes, no overlap, nothing behind the last
// tensor; spaces may stand around the header). Pure functions over a mapped file, or a plan of one
// to be written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

inline constexpr uint64_t kSafetensorsHeaderBytesMax =
    100'000'000;  // the reference library's limit
inline constexpr size_t kSafetensorsTensorsMax = 200'000;
inline constexpr size_t kSafetensorsDimensionsMax = 8;
inline constexpr size_t kSafetensorsNameBytesMax = 1024;

struct StoredTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // from the start of the file
  uint64_t end = 0;
};

// The tensors of a whole file, by rising offset. Inside the file, disjoint, gapless, each exactly
// as long as its shape and type say. `path` is for messages. Errors: kBadCheckpoint.
Result<std::vector<StoredTensor>> parse_safetensors(std::span<const uint8_t> file,
                                                    const std::string& path);

// Where the tensors of a file that has been parsed begin.
int64_t safetensors_data_begin(std::span<const uint8_t> file);

// The text of that name in the header's __metadata__; empty where there is none, or the header is
// too large to be one of ours. The file has been parsed before.
std::string safetensors_metadata(std::span<const uint8_t> file, std::string_view name);

// What is to stand in a file, in this order.
struct PlannedTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

// The bytes in front of the tensors: length word and header, padded to a multiple of `alignment`,
// itself one of 8. The tensors follow in order without gaps.
std::string safetensors_header(std::span<const PlannedTensor> tensors);
std::string safetensors_header(std::span<const PlannedTensor> tensors, const Metadata& metadata,
                               size_t alignment);

}  // namespace pelton::checkpoint
