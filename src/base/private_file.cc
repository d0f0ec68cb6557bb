#include "base/private_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace pelton::base {
namespace {

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace

Result<void> write_private_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = fmt::format("{}.{}.incomplete", path, ::getpid());
  const auto failed = [](const std::string& file, const char* what) {
    return Error{
        ErrorCode::kIo, fmt::format("{}: cannot {}: {}", file, what, std::strerror(errno)), {}};
  };
  // One that was left there may have another mode.
  ::unlink(temporary.c_str());
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.ok()) return failed(temporary, "create");
    if (!write_all(file.get(), bytes)) {
      Error error = failed(temporary, "write");
      ::unlink(temporary.c_str());
      return error;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) == 0) return {};
  Error error = failed(path, "rename into place");
  ::unlink(temporary.c_str());
  return error;
}

}  // namespace pelton::base
