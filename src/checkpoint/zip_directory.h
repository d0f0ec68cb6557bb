// The files of a zip archive that is stored, not compressed, as PyTorch writes one: where each lies
// in it. Every offset is checked before use, in one pass, with memory bounded by kZipEntriesMax.
// Pure, over a mapped file. Nothing is unpacked; checksums are not looked at, as nobody looks at
// those of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/result.h"

namespace pelton::checkpoint {

inline constexpr size_t kZipEntriesMax = 100'000;
inline constexpr size_t kZipNameBytesMax = 1024;

// By name; each inside the archive. `path` is for messages. Errors: kBadCheckpoint; kUnsupported
// for what is compressed, encrypted or larger than 4 GiB.
Result<std::map<std::string, std::span<const uint8_t>, std::less<>>> read_zip_directory(
    std::span<const uint8_t> file, const std::string& path);

}  // namespace pelton::checkpoint
