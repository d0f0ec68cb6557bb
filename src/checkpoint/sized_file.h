// A file being written, of known size, in pieces at any place and from any thread. Owned by the
// writing function.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace pelton::checkpoint {

class SizedFile {
 public:
  // Errors: kDoesNotFit if the disk has no room, kIo.
  static Result<SizedFile> create(const std::string& path, int64_t bytes);
  SizedFile(SizedFile&& other) noexcept;
  SizedFile& operator=(SizedFile&&) = delete;
  ~SizedFile();

  Result<void> write_at(int64_t offset, const uint8_t* bytes, int64_t count) const;

 private:
  SizedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

}  // namespace pelton::checkpoint
