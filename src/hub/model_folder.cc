#include "hub/model_folder.h"

#include <algorithm>
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

namespace pelton::hub {
namespace {

constexpr size_t kRefBytesMax = 256;

Result<void> make_folder(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (!code) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", path, code.message())};
}

std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

}  // namespace

ModelFolder::ModelFolder(std::string cache, std::string model) {
  const size_t slash = model.find('/');
  if (slash != std::string::npos) model.replace(slash, 1, "--");
  path_ = cache + "/models--" + model;
  locks_path_ = cache + "/.locks/models--" + model;
}

Result<void> ModelFolder::create(const std::string& commit) const {
  TRY(make_folder(path_ + "/blobs"));
  TRY(make_folder(snapshot(commit)));
  return make_folder(locks_path_);
}

Result<void> ModelFolder::link(const std::string& commit, const std::string& file,
                               const std::string& blob_name) const {
  const std::string path = snapshot(commit) + "/" + file;
  TRY(make_folder(parent(path)));
  std::string target = "../../blobs/" + blob_name;
  for (const char c : file) {
    if (c == '/') target.insert(0, "../");
  }
  // Beside it first, then renamed over what may be there: readers never see a missing file.
  const std::string temporary = fmt::format("{}.{}.incomplete", path, ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot link: {}", path, std::strerror(errno))};
  }
  return {};
}

Result<void> ModelFolder::write_ref(const std::string& revision, const std::string& commit) const {
  const std::string path = path_ + "/refs/" + revision;
  TRY(make_folder(parent(path)));
  return base::write_file(path, commit);
}

std::optional<std::string> ModelFolder::read_ref(const std::string& revision) const {
  Result<std::string> text = base::read_file(path_ + "/refs/" + revision, kRefBytesMax);
  if (!text.ok()) return std::nullopt;
  std::string commit = std::move(text).value();
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
  return commit;
}

Result<FolderLock> FolderLock::take(const ModelFolder& folder) {
  const std::string path = folder.locks_path() + "/pelton.lock";
  while (true) {
    TRY(make_folder(folder.locks_path()));
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) {
      if (errno == ENOENT) continue;  // its folder was deleted since
      return Error{ErrorCode::kIo, fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
    }
    FolderLock lock(descriptor);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("another process is downloading or deleting this model ({})", path),
                   "MODEL"};
    }
    // A purge may have deleted the file that we opened; then somebody else may hold a newer one.
    struct stat ours {
    }, named{};
    if (::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
      return lock;
    }
  }
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<int64_t> file_size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return info.st_size;
}

}  // namespace pelton::hub
