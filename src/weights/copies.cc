#include "weights/copies.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/sync_path.h"

namespace pelton::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNote = kCopyNote;
constexpr std::string_view kPartial = ".partial.";
constexpr size_t kDigestChars = 12;
constexpr size_t kNoteBytesMax = 64 << 10;
constexpr std::chrono::milliseconds kAskAgain{100};

// Without a slash at its end.
fs::path plain(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  return path.filename().empty() ? path.parent_path() : path;
}

std::string lock_path(const std::string& folder) {
  const fs::path path = plain(folder);
  return (path.parent_path() / fmt::format(".{}.weights-lock", path.filename().string())).string();
}

bool is_copy(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kNote, ignored);
}

// Its name must be one of ours, and the note be there.
bool is_partial_of(const fs::path& path, const std::string& name) {
  const std::string found = path.filename().string();
  const std::string prefix = name + std::string(kPartial);
  return is_copy(path) && found.starts_with(prefix) &&
         found.size() == prefix.size() + kDigestChars &&
         std::all_of(found.begin() + static_cast<std::ptrdiff_t>(prefix.size()), found.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::vector<fs::path> partials_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  for (fs::directory_iterator at(parent, failed), end; !failed && at != end; at.increment(failed)) {
    if (is_partial_of(at->path(), folder.filename().string())) found.push_back(at->path());
  }
  return found;
}

int64_t bytes_on_disk(const fs::path& folder) {
  constexpr int64_t kBlock = 512;
  int64_t bytes = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      bytes += info.st_blocks * kBlock;
    }
  }
  return bytes;
}

// When its bytes, name or owner were last changed: no program sets that back. None: it is not
// there.
std::optional<int64_t> change_time_ns(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return std::nullopt;
  return info.st_ctim.tv_sec * int64_t{1'000'000'000} + info.st_ctim.tv_nsec;
}

Result<void> remove_all_of(const fs::path& path) {
  std::error_code failed;
  fs::remove_all(path, failed);
  if (!failed) return {};
  return Error{ErrorCode::kIo,
               fmt::format("{}: cannot delete: {}", path.string(), failed.message()), "FOLDER"};
}

// Whether a way inside the folder leads out of it: a part of it, but the last, is a link.
bool leads_out(const fs::path& folder, const fs::path& inside) {
  fs::path at = folder;
  for (const fs::path& part : inside.parent_path()) {
    at /= part;
    std::error_code failed;
    if (fs::is_symlink(fs::symlink_status(at, failed))) return true;
  }
  return false;
}

// Where the manifest cannot be read nobody knows what else is the copy's: the rest stays.
Result<void> remove_files_of_copy(const fs::path& folder) {
  const Result<std::string> text =
      base::read_file((folder / kManifestName).string(), kManifestBytesMax);
  const Result<Manifest> manifest = text.ok() ? parse_manifest(*text) : Result<Manifest>(Error{});
  std::error_code not_empty;
  for (const ManifestFile& file : manifest.ok() ? manifest->files : std::vector<ManifestFile>()) {
    if (leads_out(folder, file.path)) continue;  // somebody else has put a link there
    fs::remove(folder / file.path, not_empty);   // a folder of that name is somebody else's
    for (fs::path above = fs::path(file.path).parent_path(); !above.empty();
         above = above.parent_path()) {
      if (!fs::remove(folder / above, not_empty)) break;
    }
  }
  // The note first: until then it can be erased again, and knows its files.
  TRY(remove_all_of(folder / kNote));
  TRY(remove_all_of(folder / kManifestName));
  fs::remove(folder, not_empty);
  return {};
}

std::vector<std::string> files_left(const fs::path& folder) {
  std::vector<std::string> left;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (!at->is_directory(failed)) left.push_back(at->path().string());
  }
  std::sort(left.begin(), left.end());
  return left;
}

Copy copy_at(const fs::path& folder) {
  Copy copy{.folder = folder.string(), .from = {}, .whole = is_copy(folder)};
  if (copy.whole) {
    copy.bytes = bytes_on_disk(folder);
    const Result<std::string> note = base::read_file((folder / kNote).string(), kNoteBytesMax);
    const Result<Json> json = note.ok() ? Json::parse(*note) : Result<Json>(Json());
    if (json.ok()) copy.from = json->string("from").value_or("");
  }
  for (const fs::path& partial : partials_of(folder)) copy.partial_bytes += bytes_on_disk(partial);
  return copy;
}

}  // namespace

Result<CopyLock> CopyLock::take(const std::string& folder, base::FunctionRef<bool()> go_on) {
  const std::string path = lock_path(folder);
  std::error_code ignored;  // what cannot be made is reported by what opens it
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, ignored);
  while (true) {
    CopyLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock.descriptor_ < 0) {
      return Error{ErrorCode::kIo, fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
    }
    while (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return Error{ErrorCode::kIo,
                     fmt::format("{}: cannot lock: {}", path, std::strerror(errno))};
      }
      if (!go_on()) return Error{ErrorCode::kCancelled, "interrupted"};
      std::this_thread::sleep_for(kAskAgain);
    }
    // Who erased the copy has deleted the file that we opened: then there may be a newer one.
    if (!lock.is_named(path)) continue;
    lock.folder_ = folder;
    return lock;
  }
}

bool CopyLock::is_named(const std::string& path) const {
  struct stat ours {
  }, named{};
  return ::fstat(descriptor_, &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

CopyLock::CopyLock(CopyLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      folder_(std::exchange(other.folder_, std::string())) {}

CopyLock::~CopyLock() {
  if (descriptor_ < 0) return;
  const fs::path path = plain(folder_);
  const bool guards_nothing = !folder_.empty() && !is_copy(path) && partials_of(path).empty();
  if (guards_nothing && is_named(lock_path(folder_))) ::unlink(lock_path(folder_).c_str());
  ::close(descriptor_);
}

std::string partial_folder(const std::string& folder, const std::string& digest) {
  return fmt::format("{}{}{}", plain(folder).string(), kPartial, digest.substr(0, kDigestChars));
}

Result<void> begin_partial(const std::string& folder, const std::string& digest,
                           const std::string& from) {
  const std::string partial = partial_folder(folder, digest);
  std::error_code failed;
  fs::create_directories(partial, failed);
  if (failed) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", partial, failed.message())};
  }
  Json note;
  note.set("from", from);
  note.set("manifest", digest);
  return base::write_file(partial + "/" + kNote, note.dump());
}

Result<bool> find_copy(const std::string& folder, const Manifest& manifest) {
  std::error_code failed;
  if (!fs::exists(folder, failed)) return false;
  const fs::path path = plain(folder);
  const Result<std::string> text =
      base::read_file((path / kManifestName).string(), kManifestBytesMax);
  bool same = is_copy(path) && text.ok() && *text == manifest.to_json();
  for (const ManifestFile& file : manifest.files) {
    same = same && fs::file_size(path / file.path, failed) == static_cast<uintmax_t>(file.bytes);
  }
  if (same) return true;
  return Error{ErrorCode::kInvalidArgument,
               is_copy(path) ? fmt::format("{} is a copy of something else, or was changed; pelton "
                                           "weights erase {} deletes it",
                                           folder, folder)
                             : fmt::format("{} is there already; name a new folder", folder),
               "DEST"};
}

void remove_other_partials(const std::string& folder, const std::string& digest) {
  const std::string kept = partial_folder(folder, digest);
  for (const fs::path& partial : partials_of(plain(folder))) {
    std::error_code ignored;
    if (partial.filename() != fs::path(kept).filename()) fs::remove_all(partial, ignored);
  }
}

Result<void> finish_copy(const std::string& folder, const ChunkFolder& chunks) {
  const fs::path path = plain(folder);
  const std::string partial = partial_folder(folder, chunks.digest());
  TRY(base::write_file(partial + "/" + kManifestName, chunks.manifest_json()));
  // A name is given to what lies on the disk: a copy with an empty manifest would be nobody's.
  for (const char* file : {kManifestName, kNote}) TRY(base::sync_path(partial + "/" + file));
  TRY(base::sync_path(partial));
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot rename to {}: {}", partial, path.string(),
                                             std::strerror(errno))};
  }
  return base::sync_path(path.has_parent_path() ? path.parent_path().string() : ".");
}

Result<Manifest> manifest_of(const std::string& folder, const MakeOptions& options,
                             MakeProgress progress) {
  const fs::path path = plain(folder);
  std::error_code failed;
  const std::optional<int64_t> written_ns = change_time_ns(path / kManifestName);
  const Result<std::string> text =
      written_ns ? base::read_file((path / kManifestName).string(), kManifestBytesMax)
                 : Result<std::string>(Error{});
  if (text.ok()) {
    Result<Manifest> manifest = parse_manifest(*text);
    const Result<std::vector<ManifestFile>> there = files_below(folder);
    // A file that came beside those that are listed would be nobody's.
    bool same = manifest.ok() && there.ok() && there->size() == manifest->files.size() &&
                (options.chunk_bytes == MakeOptions().chunk_bytes ||
                 manifest->chunk_bytes == options.chunk_bytes);
    for (size_t i = 0; same && i < manifest->files.size(); ++i) {
      const fs::path file = path / manifest->files[i].path;
      same = fs::file_size(file, failed) == static_cast<uintmax_t>(manifest->files[i].bytes) &&
             !failed && change_time_ns(file).value_or(INT64_MAX) <= *written_ns;
    }
    if (same) return manifest;
  }
  TRY_ASSIGN(Manifest made, make_manifest(folder, options, progress));
  // A copy's files were touched, by a chown as at a volume's mount: not hashed again at each start.
  if (is_copy(path) && text.ok() && *text == made.to_json()) {
    (void)base::write_file((path / kManifestName).string(), *text);
  }
  return made;
}

std::vector<Copy> list_copies(const std::string& folder) {
  std::map<std::string, Copy> copies;
  const auto add = [&](const fs::path& path) {
    Copy copy = copy_at(path);
    if (copy.whole || copy.partial_bytes > 0 || !partials_of(path).empty()) {
      copies.emplace(path.string(), std::move(copy));
    }
  };
  const fs::path path = plain(folder);
  add(path);
  std::error_code failed;
  for (fs::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    const size_t partial = name.find(kPartial);
    add(partial == std::string::npos ? at->path()
                                     : at->path().parent_path() / name.substr(0, partial));
  }
  std::vector<Copy> list;
  for (auto& [name, copy] : copies) list.push_back(std::move(copy));
  return list;
}

Result<Erased> erase_copy(const std::string& folder) {
  const fs::path path = plain(folder);
  if (!is_copy(path) && partials_of(path).empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is no copy that pelton weights mirror or serve --weights-from has "
                             "made; nothing was deleted",
                             folder),
                 "FOLDER"};
  }
  const Result<CopyLock> lock = CopyLock::take(folder, [] { return false; });
  if (!lock.ok()) {
    if (lock.error().code != ErrorCode::kCancelled) return lock.error();
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} is being fetched by another process", folder), "FOLDER"};
  }
  const Copy copy = copy_at(path);
  for (const fs::path& partial : partials_of(path)) TRY(remove_all_of(partial));
  Erased erased{.bytes = copy.bytes + copy.partial_bytes, .left = {}};
  if (copy.whole) {
    TRY(remove_files_of_copy(path));
    erased.bytes -= bytes_on_disk(path);
    erased.left = files_left(path);
  }
  ::unlink(lock_path(folder).c_str());
  return erased;
}

}  // namespace pelton::weights
