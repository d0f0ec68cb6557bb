#include "checkpoint/sized_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace pelton::checkpoint {
namespace {

Error io_error(const std::string& path, const char* what, int code) {
  return Error{ErrorCode::kIo, fmt::format("{}: cannot {}: {}", path, what, std::strerror(code))};
}

}  // namespace

Result<SizedFile> SizedFile::create(const std::string& path, int64_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return io_error(path, "create", errno);
  SizedFile file(path, fd);
  // Space is taken in one piece if the file system can; it is refused here, not after minutes.
  if (::fallocate(fd, 0, 0, bytes) != 0) {
    if (errno == ENOSPC) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("{}: no room on the disk for {} bytes", path, bytes)};
    }
    if (::ftruncate(fd, bytes) != 0) return io_error(path, "set the size", errno);
  }
  return file;
}

SizedFile::SizedFile(SizedFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

SizedFile::~SizedFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> SizedFile::write_at(int64_t offset, const uint8_t* bytes, int64_t count) const {
  while (count > 0) {
    const ssize_t put = ::pwrite(fd_, bytes, static_cast<size_t>(count), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return io_error(path_, "write", put == 0 ? ENOSPC : errno);
    offset += put;
    bytes += put;
    count -= put;
  }
  return {};
}

}  // namespace pelton::checkpoint
