#include "kv_transfer/slot_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
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
constexpr std::string_view kNewName = "blocks.pelton-kv.new";  // until it is whole
constexpr std::string_view kLockName = "lock";
// What stands behind a slot's header and around its block: a salt and a tag (SealedBlocks).
constexpr int64_t kSealBytes = 32;
// Headers are small and far from each other: more threads wait for more of them at once.
constexpr int kListThreads = 8;
constexpr int32_t kListedByThread = 512;

Error system_error(const std::string& what, ErrorCode code) {
  return Error{code, fmt::format("{}: {}", what, std::strerror(errno))};
}

bool says_full(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
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
        const bool is_full = count == 0 || says_full(errno);
        return system_error("cannot write " + path_,
                            is_full ? ErrorCode::kDoesNotFit : ErrorCode::kIo);
      }
      bytes = bytes.subspan(static_cast<size_t>(count));
      offset += count;
    }
    return {};
  }

  // A file system that reserves nothing (EOPNOTSUPP) makes room as it is written.
  Result<void> reserve(int64_t bytes) override {
    if (::fallocate(descriptor_, 0, 0, bytes) == 0) return {};
    if (errno == EOPNOTSUPP && ::ftruncate(descriptor_, bytes) == 0) return {};
    return system_error("cannot make " + path_,
                        says_full(errno) ? ErrorCode::kDoesNotFit : ErrorCode::kIo);
  }

  Result<void> sync() override {
    if (::fdatasync(descriptor_) == 0) return {};
    return system_error("cannot write " + path_, ErrorCode::kIo);
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
  if ((info.st_mode & (S_IWOTH | S_IWGRP)) != 0) {
    return refused(
        "others may write there; chmod go-w it, or name a folder below it that only this "
        "user may write (mkdir -m 700)");
  }
  return {};
}

int64_t free_bytes(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return INT64_MAX;  // it is seen when it is made
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

Error no_room(const std::string& folder, int64_t wanted, int64_t free) {
  return Error{ErrorCode::kBadConfig,
               fmt::format("--kv-disk-size: {} bytes are asked for and {} are free in {}", wanted,
                           free, folder),
               "kv-disk-size"};
}

int64_t slot_bytes_of(const FileHeader::Group& group) {
  constexpr auto kAlignment = static_cast<int64_t>(AlignedBuffer::kAlignment);
  const auto block = static_cast<int64_t>(group.block_bytes);
  const int64_t needed = static_cast<int64_t>(SlotHeader::kBytes) + kSealBytes + block;
  return (needed + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t file_bytes_of(const FileHeader& header) {
  int64_t bytes = FileHeader::kBytes;
  for (const FileHeader::Group& group : std::span(header.groups).first(header.group_count)) {
    bytes += slot_bytes_of(group) * group.slot_count;
  }
  return bytes;
}

// What lies there: so many bytes, and what they begin with, if that is a header.
struct LeftFile {
  std::optional<FileHeader> header;
  int64_t bytes = 0;
};

// Why it cannot stay for what is wanted; empty: it can. How its room is shared among the groups may
// be another one, as long as each has some; so its size may differ by what does not fill a slot of
// each.
std::string why_of_no_use(const LeftFile& found, const FileHeader& wanted) {
  constexpr const char* kDamaged = "it is damaged, or no tier's";
  if (!found.header) return kDamaged;
  const FileHeader& has = *found.header;
  const auto groups = std::span(wanted.groups).first(wanted.group_count);
  int64_t unit = 0;
  for (const FileHeader::Group& group : groups) unit += slot_bytes_of(group);
  const auto blocks = [](const FileHeader& header) {
    std::array<uint64_t, FileHeader::kGroupsMax> bytes{};
    std::ranges::transform(header.groups, bytes.begin(), &FileHeader::Group::block_bytes);
    return bytes;
  };
  if (has.group_count != wanted.group_count || blocks(has) != blocks(wanted)) {
    return "its blocks are of another model, --kv-cache-dtype or --block-size";
  }
  if (has.fingerprint != wanted.fingerprint) {
    return "it is of other weights, files that were changed or moved, another arithmetic, or "
           "another key";
  }
  if (found.bytes != file_bytes_of(has)) return kDamaged;
  const bool has_all =
      std::ranges::none_of(std::span(has.groups).first(has.group_count),
                           [](const FileHeader::Group& group) { return group.slot_count == 0; });
  const int64_t more = file_bytes_of(wanted) - found.bytes;
  if (!has_all || more >= unit || -more >= unit) return "it was made with another --kv-disk-size";
  return "";
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
  ::unlink(fmt::format("{}/{}", options.folder, kNewName).c_str());  // of a start that was killed
  file->header_ = options.header;
  file->is_kept_ = options.keeps;
  file->look_at(options, path);
  if (file->is_warm_) {
    TRY(file->open_both(options, path, 0));
  } else {
    TRY(file->make(options, path));
  }
  return file;
}

// What an earlier process has left.
void SlotFile::look_at(const Options& options, const std::string& path) {
  const int there = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (there < 0) return;
  SystemFile old(there, path);
  std::string bytes(FileHeader::kBytes, '\0');
  const bool is_read = old.read(0, bytes).ok();
  struct stat info {};
  const bool is_known = ::fstat(there, &info) == 0;
  constexpr int64_t kStatBlock = 512;
  reclaimed_bytes_ = is_known ? int64_t{info.st_blocks} * kStatBlock : 0;
  const LeftFile what{.header = is_read ? FileHeader::decode(bytes) : std::nullopt,
                      .bytes = is_known ? int64_t{info.st_size} : 0};
  why_reclaimed_ = options.keeps ? why_of_no_use(what, options.header)
                                 : "no --kv-disk-key-file is given, and it was made with one";
  is_warm_ = why_reclaimed_.empty();
  if (is_warm_) header_ = *what.header;
}

// The room is reserved now, so that it is not missing later. What lies there goes when the new file
// is whole; before, where there is no room for both.
Result<void> SlotFile::make(const Options& options, const std::string& path) {
  const std::string new_path = fmt::format("{}/{}", options.folder, kNewName);
  const int64_t free = free_bytes(options.folder);
  const int64_t reclaimed = is_reclaimed() ? reclaimed_bytes_ : 0;
  if (file_bytes() > free && file_bytes() - free > reclaimed) {
    return no_room(options.folder, file_bytes(), free + reclaimed);
  }
  if (file_bytes() > free) ::unlink(path.c_str());
  const auto made = [&]() -> Result<void> {
    TRY(open_both(options, new_path, O_CREAT | O_EXCL));
    const Result<void> reserved = buffered_->reserve(file_bytes());
    if (!reserved.ok() && reserved.error().code == ErrorCode::kDoesNotFit) {
      return no_room(options.folder, file_bytes(), free_bytes(options.folder));
    }
    TRY(reserved);
    return buffered_->write(0, header_.encode());
  }();
  const bool is_named = made.ok() && options.keeps && ::rename(new_path.c_str(), path.c_str()) == 0;
  if (is_named) return {};
  const Error unnamed = system_error("cannot make " + path, ErrorCode::kIo);
  ::unlink(new_path.c_str());
  if (!made.ok() || options.keeps) return made.ok() ? unnamed : made;
  if (is_reclaimed()) ::unlink(path.c_str());
  return {};
}

Result<void> SlotFile::open_both(const Options& options, const std::string& path, int flags) {
  const int buffered = ::open(path.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (buffered < 0) return system_error("cannot open " + path, ErrorCode::kIo);
  buffered_ = std::make_unique<SystemFile>(buffered, path);
  int direct = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
  is_direct_ = direct >= 0;
  if (!is_direct_) direct = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (direct < 0) return system_error("cannot open " + path, ErrorCode::kIo);
  file_ = std::make_unique<SystemFile>(direct, path);
  if (!options.wrap) return {};
  file_ = options.wrap(std::move(file_));
  buffered_ = options.wrap(std::move(buffered_));
  return {};
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
  file->is_kept_ = true;
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
  return slot_bytes_of(header_.groups[static_cast<size_t>(group)]);
}

int64_t SlotFile::offset_of(const Slot& slot) const {
  int64_t offset = FileHeader::kBytes;
  for (int group = 0; group < slot.group; ++group) {
    offset += slot_bytes(group) * header_.groups[static_cast<size_t>(group)].slot_count;
  }
  return offset + slot_bytes(slot.group) * slot.index;
}

int64_t SlotFile::file_bytes() const {
  return file_bytes_of(header_);
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
  return write_header();
}

Result<void> SlotFile::next_generation() {
  ++header_.generation;
  header_.erased_count = 0;
  header_.erased = {};
  return write_header();
}

// A file that nobody opens again has nothing to keep.
Result<void> SlotFile::write_header() {
  TRY(buffered_->write(0, header_.encode()));
  return is_kept_ ? buffered_->sync() : Result<void>();
}

}  // namespace pelton::kv_transfer
