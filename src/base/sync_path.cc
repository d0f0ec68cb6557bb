#include "base/sync_path.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

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

Result<void> sync_name(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return sync_path(folder.empty() ? "." : folder);
}

}  // namespace pelton::base
