#include "checkpoint/weight_pieces.h"

#include <algorithm>
#include <cerrno>
#include <functional>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace pelton::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr size_t kHugePageBytes = size_t{2} << 20;

uint8_t* address_of(const WeightPiece& piece) {
  return const_cast<uint8_t*>(piece.file->bytes().data()) + piece.begin;
}

int64_t page_bytes() {
  return ::sysconf(_SC_PAGESIZE);
}

size_t whole_pages(int64_t bytes) {
  const auto page = static_cast<size_t>(page_bytes());
  return (static_cast<size_t>(bytes) + page - 1) / page * page;
}

// Zero, or an errno.
int read_file(const WeightPiece& piece, uint8_t* to) {
  for (int64_t done = 0; done < piece.bytes;) {
    const ssize_t got = ::pread(piece.file->descriptor(), to + done,
                                static_cast<size_t>(piece.bytes - done), piece.begin + done);
    if (got > 0) done += got;
    if (got == 0) return EIO;
    if (got < 0 && errno != EINTR) return errno;
  }
  return 0;
}

// Whether the file is nowhere but in memory.
bool is_in_memory(const base::MappedFile& file) {
  struct statfs info {};
  if (::fstatfs(file.descriptor(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == HUGETLBFS_MAGIC;
}

bool holds_some(const WeightPiece& piece, const tensor::TensorView& tensor) {
  const uint8_t* const begin = address_of(piece);
  const uint8_t* const first = tensor.bytes.data();
  const std::less<> before;
  return before(first, begin + piece.bytes) && before(begin, first + tensor.bytes.size());
}

// Bytes [begin, end) of `file`.
void add_pieces(const base::MappedFile& file, int64_t begin, int64_t end, WeightPieces& pieces) {
  for (; begin < end; begin += kPieceBytes) {
    pieces.push_back({&file, begin, std::min(kPieceBytes, end - begin)});
  }
}

struct Pages {  // bytes of a file
  int64_t begin;
  int64_t end;
};

// Those of `file` on which `ranges` lie, in order, neighbours in one.
std::vector<Pages> pages_of(const base::MappedFile& file, const WeightRanges& ranges) {
  const std::span<const uint8_t> bytes = file.bytes();
  const int64_t page = page_bytes();
  const std::less_equal<> no_later;
  std::vector<Pages> all;
  for (const WeightRange& range : ranges) {
    const bool is_there =
        !range.bytes.empty() && no_later(bytes.data(), range.bytes.data()) &&
        no_later(range.bytes.data() + range.bytes.size(), bytes.data() + bytes.size());
    if (!is_there) continue;
    const int64_t begin = range.bytes.data() - bytes.data();
    const int64_t end = begin + std::ssize(range.bytes);
    all.push_back(
        {begin / page * page, std::min((end + page - 1) / page * page, std::ssize(bytes))});
  }
  std::ranges::sort(all, {}, &Pages::begin);
  std::vector<Pages> joined;
  for (const Pages& pages : all) {
    if (joined.empty() || joined.back().end < pages.begin) {
      joined.push_back(pages);
    } else {
      joined.back().end = std::max(joined.back().end, pages.end);
    }
  }
  return joined;
}

}  // namespace

WeightPieces weight_pieces(const Checkpoint& checkpoint) {
  WeightPieces pieces;
  for (const base::MappedFile& file : checkpoint.files()) {
    add_pieces(file, 0, std::ssize(file.bytes()), pieces);
  }
  return pieces;
}

WeightPieces weight_pieces(const Checkpoint& checkpoint, const WeightRanges& ranges) {
  WeightPieces pieces;
  for (const base::MappedFile& file : checkpoint.files()) {
    for (const Pages& pages : pages_of(file, ranges)) {
      add_pieces(file, pages.begin, pages.end, pieces);
    }
  }
  return pieces;
}

int64_t mapped_bytes(const WeightPieces& pieces) {
  int64_t bytes = 0;
  for (const WeightPiece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

WeightPieces movable_weight_pieces(const Checkpoint& checkpoint, WeightPieces pieces) {
  std::erase_if(pieces, [&](const WeightPiece& piece) {
    return is_in_memory(*piece.file) ||
           std::none_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                        [&](const auto& named) { return holds_some(piece, named.second); });
  });
  return pieces;
}

int move_to_own_memory(const WeightPiece& piece, FilePages pages) {
  uint8_t* const begin = address_of(piece);
  const size_t bytes = whole_pages(piece.bytes);
  // Aligned as `begin` is within a huge page, so that moving it keeps huge pages whole.
  const size_t skew = reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  const size_t room = bytes + 2 * kHugePageBytes;
  void* reserved = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return errno;
  const auto at = reinterpret_cast<uintptr_t>(reserved);
  auto* to = reinterpret_cast<uint8_t*>(
      (at + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes + skew);
  int code = 0;
  if (::mprotect(to, bytes, PROT_READ | PROT_WRITE) != 0) code = errno;
  if (code == 0) {
    ::madvise(to, bytes, MADV_HUGEPAGE);  // a hint
    code = read_file(piece, to);
  }
  if (code == 0 && ::mprotect(to, bytes, PROT_READ) != 0) code = errno;
  // In one step, as others see it.
  if (code == 0 && ::mremap(to, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == MAP_FAILED) {
    code = errno;
  }
  // What was moved away left a hole, which may be another thread's by now.
  auto* front = static_cast<uint8_t*>(reserved);
  if (code != 0) {
    ::munmap(front, room);
    return code;
  }
  if (to > front) ::munmap(front, static_cast<size_t>(to - front));
  ::munmap(to + bytes, static_cast<size_t>(front + room - (to + bytes)));
  if (pages == FilePages::kDrop) {
    ::posix_fadvise(piece.file->descriptor(), piece.begin, piece.bytes, POSIX_FADV_DONTNEED);
  }
  return 0;
}

int map_file_again(const WeightPiece& piece) {
  const void* const at = ::mmap(address_of(piece), whole_pages(piece.bytes), PROT_READ,
                                MAP_SHARED | MAP_FIXED, piece.file->descriptor(), piece.begin);
  return at == MAP_FAILED ? errno : 0;
}

}  // namespace pelton::checkpoint
