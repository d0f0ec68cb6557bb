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

size_t whole_pages(int64_t bytes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
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

}  // namespace

std::vector<WeightPiece> weight_pieces(const Checkpoint& checkpoint) {
  std::vector<WeightPiece> pieces;
  for (const base::MappedFile& file : checkpoint.files()) {
    const auto size = static_cast<int64_t>(file.bytes().size());
    for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
      pieces.push_back({&file, begin, std::min(kPieceBytes, size - begin)});
    }
  }
  return pieces;
}

std::vector<WeightPiece> movable_weight_pieces(const Checkpoint& checkpoint) {
  std::vector<WeightPiece> pieces = weight_pieces(checkpoint);
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
