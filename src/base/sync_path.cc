#include "base/sync_path.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace pelton::base {

Result<void> sync_path(const std::string& path) {
  const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.ok() && ::fsync(opened.get()) == 0) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot sync: {}", path, std::strerror(errno))};
}

}  // namespace pelton::base
