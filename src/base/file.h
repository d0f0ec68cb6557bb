// Whole files: read, written, or mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::base {

// Refuses files over `bytes_max` before reading them (kIo, kNotFound).
Result<std::string> read_file(const std::string& path, size_t bytes_max = size_t{1} << 31);

// Writes to a temporary beside `path` and renames it: readers see the old file or the new one.
Result<void> write_file(const std::string& path, std::string_view bytes);

// A file mapped read-only for as long as this lives. Any thread may read the bytes.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // The file that is mapped, open for reading, whatever its path leads to by now.
  int descriptor() const { return descriptor_; }

 private:
  MappedFile(std::string path, int descriptor, const uint8_t* data, size_t size)
      : path_(std::move(path)), descriptor_(descriptor), data_(data), size_(size) {}

  std::string path_;
  int descriptor_ = -1;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pelton::base
