#include "weights/temporary_copy.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace pelton::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "pelton-weights-";
constexpr size_t kRandom = 6;  // characters of mkdtemp's
// In every one that was made here: a name alone is no reason to delete anything.
constexpr const char* kMark = ".pelton-temporary-copy";

bool is_leftover(const fs::path& folder) {
  const std::string name = folder.filename().string();
  std::error_code ignored;
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + kRandom &&
         fs::is_regular_file(fs::symlink_status(folder / kMark, ignored));
}

// -1: another process has it, or it is not ours.
int try_lock(const fs::path& folder) {
  const int number = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info {};
  if (number >= 0 && ::fstat(number, &info) == 0 && info.st_uid == ::geteuid() &&
      ::flock(number, LOCK_EX | LOCK_NB) == 0) {
    return number;
  }
  if (number >= 0) ::close(number);
  return -1;
}

void remove_leftovers(const fs::path& parent) {
  std::error_code failed;
  for (fs::directory_iterator at(parent, failed), end; !failed && at != end; at.increment(failed)) {
    if (!is_leftover(at->path())) continue;
    const int lock = try_lock(at->path());
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(at->path(), ignored);
    ::close(lock);
  }
}

}  // namespace

Result<TemporaryCopy> TemporaryCopy::make() {
  std::error_code failed;
  const fs::path parent = fs::temp_directory_path(failed);
  if (failed) return Error{ErrorCode::kIo, "temporary folder: " + failed.message()};
  remove_leftovers(parent);
  std::string path = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  // Another process may take it for a leftover in the moment before it is locked.
  for (int tries = 0; tries < 10; ++tries) {
    std::string made = path;
    if (::mkdtemp(made.data()) == nullptr) break;
    const int lock = try_lock(made);
    if (lock < 0) continue;
    TemporaryCopy copy(made, lock);
    TRY(base::write_file(made + "/" + kMark, ""));
    return copy;
  }
  return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", path, std::strerror(errno))};
}

TemporaryCopy::TemporaryCopy(TemporaryCopy&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), lock_(std::exchange(other.lock_, -1)) {}

TemporaryCopy& TemporaryCopy::operator=(TemporaryCopy&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(lock_, other.lock_);
  return *this;
}

TemporaryCopy::~TemporaryCopy() {
  if (lock_ < 0) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  ::close(lock_);
}

}  // namespace pelton::weights
