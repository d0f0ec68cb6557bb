#include "node/packing_lock.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "node/packed_folder.h"

namespace pelton::node {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kAskAgain{100};
constexpr std::chrono::hours kLeftAlone{1};

fs::file_time_type last_written(const fs::path& folder) {
  std::error_code failed;
  fs::file_time_type last = fs::last_write_time(folder, failed);
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    last = std::max(last, fs::last_write_time(at->path(), failed));
  }
  return last;
}

}  // namespace

Result<PackingLock> PackingLock::take(const std::string& folder, base::FunctionRef<bool()> go_on,
                                      base::Log& log) {
  const fs::path path(folder);
  std::error_code ignored;  // what cannot be made here is reported where it is needed
  fs::create_directories(path.parent_path(), ignored);
  const std::string file =
      (path.parent_path() / fmt::format(".{}.lock", path.filename().string())).string();
  PackingLock lock(folder, ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.descriptor_ < 0) return lock;
  bool is_logged = false;
  while (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      ::close(std::exchange(lock.descriptor_, -1));
      break;
    }
    if (!std::exchange(is_logged, true)) {
      // A warning, so that verbs that log nothing else do not seem to hang.
      log.warning(
          fmt::format("another process is packing these weights into {}: waiting for it", folder));
    }
    if (!go_on()) return Error{ErrorCode::kCancelled, "interrupted"};
    std::this_thread::sleep_for(kAskAgain);
  }
  return lock;
}

PackingLock::PackingLock(PackingLock&& other) noexcept
    : folder_(other.folder_), descriptor_(std::exchange(other.descriptor_, -1)) {}

PackingLock::~PackingLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PackingLock::remove_leftovers(base::Log& log) const {
  if (descriptor_ < 0) return;
  const fs::path path(folder_);
  const std::string prefix = path.filename().string() + std::string(kPartialFolder);
  std::error_code failed;
  for (fs::directory_iterator at(path.parent_path(), failed), end; !failed && at != end;
       at.increment(failed)) {
    const fs::path& left = at->path();
    if (!left.filename().string().starts_with(prefix)) continue;
    if (fs::file_time_type::clock::now() - last_written(left) < kLeftAlone) continue;
    std::error_code kept;
    fs::remove_all(left, kept);
    log.info(fmt::format("{}: left by a process that was killed, {}", left.string(),
                         kept ? "cannot be deleted: " + kept.message() : "deleted"));
  }
}

}  // namespace pelton::node
