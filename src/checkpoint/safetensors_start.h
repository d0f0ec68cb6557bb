// A safetensors file's tensors by its beginning alone: for who reads them one after the other, and
// never holds the whole file. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace pelton::checkpoint {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;  // in front of the header: how long it is

// parse_safetensors() of a file of `file_bytes` of which `start` holds the length word and the
// header, if need be more. Errors: the same.
Result<std::vector<StoredTensor>> parse_safetensors_start(std::span<const uint8_t> start,
                                                          uint64_t file_bytes,
                                                          const std::string& path);

}  // namespace pelton::checkpoint
