#include "checkpoint/zip_directory.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"

namespace pelton::checkpoint {
namespace {

using Bytes = std::span<const uint8_t>;

// APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr size_t kEndBytes = 22;
constexpr size_t kCommentBytesMax = 65535;
constexpr size_t kEntryBytes = 46;
constexpr size_t kLocalBytes = 30;
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kStored = 0;
constexpr uint32_t kZip64 = 0xffffffff;

uint32_t number(Bytes bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint32_t{bytes[at + i]} << (8 * i);
  return value;
}

Error bad(const std::string& path, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what)};
}

// The record that ends an archive, behind which a comment may stand.
Result<size_t> find_end(Bytes file, const std::string& path) {
  if (file.size() < kEndBytes) return bad(path, "is too short for a zip archive");
  const size_t last = file.size() - kEndBytes;
  const size_t first = last - std::min(last, kCommentBytesMax);
  for (size_t at = last + 1; at-- > first;) {
    if (number(file, at, 4) == kEndSignature && number(file, at + 20, 2) == last - at) return at;
  }
  return bad(path, "is no zip archive: it has no directory at its end");
}

struct Entry {
  std::string name;
  Bytes bytes;
};

// `at`: the entry in the directory, whose fixed part is inside the file.
Result<Entry> read_entry(Bytes file, size_t at, const std::string& path) {
  const size_t name_bytes = number(file, at + 28, 2);
  const std::string name(reinterpret_cast<const char*>(file.data()) + at + kEntryBytes, name_bytes);
  const auto refuse = [&](ErrorCode code, std::string_view what) {
    return Error{code, fmt::format("{}: entry {} {}", path, shown(name), what)};
  };
  if (name_bytes > kZipNameBytesMax) {
    return refuse(ErrorCode::kBadCheckpoint, "has too long a name");
  }
  if ((number(file, at + 8, 2) & kEncrypted) != 0) {
    return refuse(ErrorCode::kUnsupported, "is encrypted");
  }
  const uint32_t packed = number(file, at + 20, 4);
  const uint32_t size = number(file, at + 24, 4);
  const uint32_t local = number(file, at + 42, 4);
  if (packed == kZip64 || size == kZip64 || local == kZip64) {
    return refuse(ErrorCode::kUnsupported, "lies in an archive of more than 4 GiB");
  }
  if (number(file, at + 10, 2) != kStored || packed != size) {
    return refuse(ErrorCode::kUnsupported, "is compressed");
  }
  if (file.size() < kLocalBytes || local > file.size() - kLocalBytes ||
      number(file, local, 4) != kLocalSignature) {
    return refuse(ErrorCode::kBadCheckpoint, "is not where the directory says");
  }
  const uint64_t begin =
      uint64_t{local} + kLocalBytes + number(file, local + 26, 2) + number(file, local + 28, 2);
  if (begin > file.size() || size > file.size() - begin) {
    return refuse(ErrorCode::kBadCheckpoint, "reaches beyond the file's end");
  }
  return Entry{.name = name, .bytes = file.subspan(begin, size)};
}

}  // namespace

Result<std::map<std::string, Bytes, std::less<>>> read_zip_directory(Bytes file,
                                                                     const std::string& path) {
  TRY_ASSIGN(const size_t end, find_end(file, path));
  const size_t count = number(file, end + 10, 2);
  const size_t directory_bytes = number(file, end + 12, 4);
  size_t at = number(file, end + 16, 4);
  if (at == kZip64) {
    return Error{ErrorCode::kUnsupported, fmt::format("{}: is larger than 4 GiB", path)};
  }
  if (count > kZipEntriesMax || at > end || directory_bytes > end - at) {
    return bad(path, "has a zip directory that is not inside it");
  }
  const size_t directory_end = at + directory_bytes;
  std::map<std::string, Bytes, std::less<>> entries;
  for (size_t i = 0; i < count; ++i) {
    if (directory_end - at < kEntryBytes || number(file, at, 4) != kEntrySignature) {
      return bad(path, fmt::format("has a broken zip directory (entry {} of {})", i, count));
    }
    const size_t whole = kEntryBytes + number(file, at + 28, 2) + number(file, at + 30, 2) +
                         number(file, at + 32, 2);
    if (directory_end - at < whole) {
      return bad(path, fmt::format("has a broken zip directory (entry {} of {})", i, count));
    }
    TRY_ASSIGN(Entry entry, read_entry(file, at, path));
    const auto [known, is_new] = entries.emplace(std::move(entry.name), entry.bytes);
    if (!is_new) return bad(path, fmt::format("has two entries {}", shown(known->first)));
    at += whole;
  }
  return entries;
}

}  // namespace pelton::checkpoint
