#include "base/file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/mapping_fault.h"

namespace pelton::base {
namespace {

Error io_error(const std::string& path, const char* what) {
  const int code = errno;
  return Error{code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{}: cannot {}: {}", path, what, std::strerror(code))};
}

// What is to be written cannot be missing.
Error write_error(const std::string& path, const char* what) {
  Error error = io_error(path, what);
  error.code = ErrorCode::kIo;
  return error;
}

// As mmap() answers. A large file begins where a huge page does, so that memory that is put in its
// place (checkpoint/residency.h) can have some.
void* map_read_only(size_t size, int fd) {
  constexpr size_t kHugePageBytes = size_t{2} << 20;
  if (size < kHugePageBytes) return ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const size_t room = size + kHugePageBytes;
  void* reserved = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  auto* begin = static_cast<uint8_t*>(reserved);
  const size_t skew = reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  const size_t front = skew == 0 ? 0 : kHugePageBytes - skew;
  void* data = ::mmap(begin + front, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    ::munmap(reserved, room);
    errno = code;
    return MAP_FAILED;
  }
  if (front > 0) ::munmap(begin, front);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t end = front + (size + page - 1) / page * page;
  if (end < room) ::munmap(begin + end, room - end);
  return data;
}

Result<size_t> regular_file_size(const Descriptor& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return io_error(path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kIo, fmt::format("{}: is not a regular file", path)};
  }
  return static_cast<size_t>(info.st_size);
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  // O_NONBLOCK: to open a pipe would wait for somebody to write to it; it is refused below.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return io_error(path, "open");
  TRY_ASSIGN(const size_t size, regular_file_size(file, path));
  if (size > bytes_max) {
    return Error{ErrorCode::kIo, fmt::format("{}: has {} bytes, more than the {} allowed here",
                                             path, size, bytes_max)};
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, "read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

Result<void> write_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = fmt::format("{}.{}.incomplete", path, ::getpid());
  {
    const Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return write_error(temporary, "create");
    while (!bytes.empty()) {
      const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        Error error = write_error(temporary, "write");
        ::unlink(temporary.c_str());
        return error;
      }
      bytes.remove_prefix(static_cast<size_t>(put));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return write_error(path, "rename into place");
  return {};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return io_error(path, "open");
  TRY_ASSIGN(const size_t size, regular_file_size(file, path));
  if (size == 0) return MappedFile(path, file.release(), nullptr, 0);
  void* data = map_read_only(size, file.get());
  if (data == MAP_FAILED) return io_error(path, "map");
  list_mapping(path, data, size);
  return MappedFile(path, file.release(), static_cast<const uint8_t*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (data_ == nullptr) return;
  unlist_mapping(data_);  // first, so that no other mapping is ever called by this name
  ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace pelton::base
