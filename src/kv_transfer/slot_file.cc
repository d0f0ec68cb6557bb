#include "kv_transfer/slot_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"

namespace pelton::kv_transfer {
namespace {

constexpr std::string_view kFileName = "blocks.pelton-kv";
constexpr std::string_view kLockName = "lock";
// What stands behind a slot's header and around its block: a salt and a tag (SealedBlocks).
constexpr int64_t kSealBytes = 32;
// Headers are small and far from each other: more threads wait for more of them at once.
constexpr int kListThreads = 8;
constexpr int32_t kListedByThread = 512;

Error system_error(const std::string& what, ErrorCode code) {
  return Error{code, fmt::format("{}: {}", what, std::strerror(errno))};
}

class SystemFile final : public RawFile {
 public:
  SystemFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~SystemFile() override { ::close(descriptor_); }

  Result<void> read(int64_t offset, std::span<char> into) override {
    while (!into.empty()) {
      const ssize_t count = ::pread(descriptor_, into.data(), into.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return system_error("cannot read " + path_, ErrorCode::kIo);
      if (count == 0) return Error{ErrorCode::kIo, path_ + " is shorter than it was made"};
      into = into.subspan(static_cast<size_t>(count));
      offset += count;
    }
    return {};
  }

  Result<void> write(int64_t offset, std::span<const char> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const bool is_full = count == 0 || errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        return system_error("cannot write " + path_,
                            is_full ? ErrorCode::kDoesNotFit : ErrorCode::kIo);
      }
      bytes = bytes.subspan(static_cast<size_t>(count));
      offset += count;
    }
    return {};
  }

 private:
  const int descriptor_;
  const std::string path_;
};

Result<void> check_folder(const std::string& folder) {
  struct stat info {};
  const auto refused = [&](const std::string& why) {
    return Error{ErrorCode::kBadConfig, fmt::format("--kv-disk {}: {}", folder, why), "kv-disk"};
  };
  if (::stat(folder.c_str(), &info) != 0) return refused(std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) return refused("not a directory");
  if ((info.st_mode & S_IWOTH) != 0) return refused("others may write there; chmod o-w it");
  return {};
}

}  // namespace

AlignedBuffer::AlignedBuffer(size_t size)
    : size_(size),
      bytes_(static_cast<char*>(
          std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment))) {
  CHECK(bytes_ != nullptr, "out of memory");
}

Result<void> SlotFile::lock(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kLockName);
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) return system_error("--kv-disk: cannot open " + path, ErrorCode::kBadConfig);
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  return Error{
      ErrorCode::kBadConfig,
      fmt::format("--kv-disk {}: another process uses it; give each its own folder", folder),
      "kv-disk"};
}

SlotFile::~SlotFile() {
  if (lock_ >= 0) ::close(lock_);
}

Result<std::unique_ptr<SlotFile>> SlotFile::open(const Options& options) {
  TRY(check_folder(options.folder));
  std::unique_ptr<SlotFile> file(new SlotFile);
  TRY(file->lock(options.folder));
  const std::string path = fmt::format("{}/{}", options.folder, kFileName);
  file->header_ = options.header;
  const int there = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (there >= 0) {
    SystemFile old(there, path);
    std::string bytes(FileHeader::kBytes, '\0');
    const bool is_read = old.read(0, bytes).ok();
    std::optional<FileHeader> header = is_read ? FileHeader::decode(bytes) : std::nullopt;
    const FileHeader found = header.value_or(FileHeader{});
    if (header) {
      header->generation = 0;
      header->erased_count = 0;
      header->erased = {};
    }
    FileHeader wanted = options.header;
    wanted.generation = 0;
    struct stat info {};
    const bool is_whole = ::fstat(there, &info) == 0 && info.st_size == file->file_bytes();
    file->is_warm_ = options.keeps && is_whole && header == wanted;
    file->is_reclaimed_ = !file->is_warm_;
    if (file->is_warm_) file->header_ = found;
  }
  TRY(file->make(options, path));
  if (options.wrap) {
    file->file_ = options.wrap(std::move(file->file_));
    file->buffered_ = options.wrap(std::move(file->buffered_));
  }
  return file;
}

// The room is reserved now, so that it is not missing later.
Result<void> SlotFile::make(const Options& options, const std::string& path) {
  if (!is_warm_) {
    struct statvfs disk {};
    if (is_reclaimed_) ::unlink(path.c_str());
    if (::statvfs(options.folder.c_str(), &disk) == 0) {
      const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
      if (file_bytes() > free) {
        return Error{ErrorCode::kBadConfig,
                     fmt::format("--kv-disk-size: {} bytes are asked for and {} are free in {}",
                                 file_bytes(), free, options.folder),
                     "kv-disk-size"};
      }
    }
  }
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (is_warm_ ? 0 : O_CREAT | O_EXCL);
  const int buffered = ::open(path.c_str(), flags, 0600);
  if (buffered < 0) return system_error("cannot open " + path, ErrorCode::kIo);
  buffered_ = std::make_unique<SystemFile>(buffered, path);
  int direct = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
  is_direct_ = direct >= 0;
  if (!is_direct_) direct = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (direct < 0) return system_error("cannot open " + path, ErrorCode::kIo);
  file_ = std::make_unique<SystemFile>(direct, path);
  if (!options.keeps && ::unlink(path.c_str()) != 0) {
    return system_error("cannot unlink " + path, ErrorCode::kIo);
  }
  if (is_warm_) return {};
  if (::fallocate(buffered, 0, 0, file_bytes()) != 0 && ::ftruncate(buffered, file_bytes()) != 0) {
    return system_error("cannot make " + path, ErrorCode::kIo);
  }
  return buffered_->write(0, header_.encode());
}

Result<std::unique_ptr<SlotFile>> SlotFile::open_existing(const std::string& folder) {
  TRY(check_folder(folder));
  const std::string path = fmt::format("{}/{}", folder, kFileName);
  const int there = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (there < 0) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} holds no tier that is kept: without --kv-disk-key-file it goes "
                             "with its server",
                             folder)};
  }
  std::unique_ptr<SlotFile> file(new SlotFile);
  file->file_ = std::make_unique<SystemFile>(there, path);
  TRY(file->lock(folder));
  std::string bytes(FileHeader::kBytes, '\0');
  TRY(file->file_->read(0, bytes));
  const std::optional<FileHeader> header = FileHeader::decode(bytes);
  if (!header) return Error{ErrorCode::kIo, path + " does not begin as a tier's file does"};
  file->header_ = *header;
  const int again = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (again < 0) return system_error("cannot open " + path, ErrorCode::kIo);
  file->buffered_ = std::make_unique<SystemFile>(again, path);
  return file;
}

int64_t SlotFile::slot_bytes(int group) const {
  constexpr auto kAlignment = static_cast<int64_t>(AlignedBuffer::kAlignment);
  const auto block = static_cast<int64_t>(header_.groups[static_cast<size_t>(group)].block_bytes);
  const int64_t needed = static_cast<int64_t>(SlotHeader::kBytes) + kSealBytes + block;
  return (needed + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t SlotFile::offset_of(const Slot& slot) const {
  int64_t offset = FileHeader::kBytes;
  for (int group = 0; group < slot.group; ++group) {
    offset += slot_bytes(group) * header_.groups[static_cast<size_t>(group)].slot_count;
  }
  return offset + slot_bytes(slot.group) * slot.index;
}

int64_t SlotFile::file_bytes() const {
  return offset_of({.group = static_cast<int>(header_.group_count)});
}

Result<std::vector<SlotFile::Found>> SlotFile::list() {
  std::vector<Found> all;
  for (int group = 0; group < static_cast<int>(header_.group_count); ++group) {
    const auto count = static_cast<int32_t>(header_.groups[static_cast<size_t>(group)].slot_count);
    const int threads = std::clamp(count / kListedByThread, 1, kListThreads);
    std::vector<std::vector<Found>> parts(static_cast<size_t>(threads));
    std::vector<Result<void>> results(static_cast<size_t>(threads));
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) {
      const auto edge = [&](int part) {
        return static_cast<int32_t>(int64_t{count} * part / threads);
      };
      readers.emplace_back([&, i, begin = edge(i), end = edge(i + 1)] {
        results[static_cast<size_t>(i)] =
            list_part(group, begin, end, parts[static_cast<size_t>(i)]);
      });
    }
    for (std::thread& reader : readers) reader.join();
    for (size_t i = 0; i < parts.size(); ++i) {
      TRY(results[i]);
      all.insert(all.end(), parts[i].begin(), parts[i].end());
    }
  }
  std::ranges::sort(all, {}, [](const Found& one) { return one.header.number; });
  return all;
}

Result<void> SlotFile::list_part(int group, int32_t begin, int32_t end, std::vector<Found>& found) {
  char bytes[SlotHeader::kBytes];
  for (int32_t index = begin; index < end; ++index) {
    const Slot slot{.group = group, .index = index};
    TRY(buffered_->read(offset_of(slot), bytes));
    const std::optional<SlotHeader> header = SlotHeader::decode({bytes, sizeof(bytes)});
    if (!header || !header_.holds(*header)) continue;
    if (header->group == static_cast<uint32_t>(group)) found.push_back({slot, *header});
  }
  return {};
}

Result<void> SlotFile::read(const Slot& slot, std::span<char> buffer) {
  CHECK(static_cast<int64_t>(buffer.size()) == slot_bytes(slot.group));
  return file_->read(offset_of(slot), buffer);
}

Result<void> SlotFile::write(const Slot& slot, std::span<const char> buffer) {
  CHECK(static_cast<int64_t>(buffer.size()) == slot_bytes(slot.group));
  return file_->write(offset_of(slot), buffer);
}

Result<void> SlotFile::erase(const Slot& slot) {
  AlignedBuffer nothing(static_cast<size_t>(slot_bytes(slot.group)));
  std::ranges::fill(nothing.bytes(), '\0');
  return write(slot, nothing.bytes());
}

Result<void> SlotFile::erase_owner(const FileHeader::Erased& erased) {
  const auto known = std::span(header_.erased).first(header_.erased_count);
  const auto found = std::ranges::find(known, erased.owner, &FileHeader::Erased::owner);
  if (found != known.end()) {
    found->number = std::max(found->number, erased.number);
  } else if (header_.erased_count == FileHeader::kErasedMax) {
    return next_generation();
  } else {
    header_.erased[header_.erased_count++] = erased;
  }
  return buffered_->write(0, header_.encode());
}

Result<void> SlotFile::next_generation() {
  ++header_.generation;
  header_.erased_count = 0;
  header_.erased = {};
  return buffered_->write(0, header_.encode());
}

}  // namespace pelton::kv_transfer
