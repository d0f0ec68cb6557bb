#include "apps/work_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace pelton::apps {

Result<WorkFolder> WorkFolder::make(std::string_view prefix) {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
  std::string path = (parent / fmt::format("{}-XXXXXX", prefix)).string();
  if (failed || ::mkdtemp(path.data()) == nullptr) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be made (TMPDIR)", path), {}};
  }
  return WorkFolder(std::move(path));
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace pelton::apps
