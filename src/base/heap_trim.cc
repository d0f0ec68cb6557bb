#include "base/heap_trim.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

namespace pelton::base {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kFreeBytesKept = int64_t{8} << 20;  // less than this is not worth a thought
constexpr int64_t kRiseBytes = int64_t{4} << 20;      // of the process, and the books are looked at
constexpr size_t kTopBytesKept = size_t{1} << 20;     // at the main arena's end

// Of the allocator's own; it would raise both to what was ever freed in one piece, up to 32 and 64
// MiB, and then keep as much at the end of each thread's arena, where malloc_trim does not look.
constexpr int kOwnMappingBytes = 1 << 20;  // such a piece is a mapping of its own
constexpr int kEndBytesKept = 1 << 20;     // of each arena

// 0 where it is not known.
int64_t resident_bytes() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128];
  const ssize_t count = ::read(file, text, sizeof(text));
  ::close(file);
  if (count <= 0) return 0;
  const std::string_view fields(text, static_cast<size_t>(count));
  const size_t second = std::min(fields.find(' '), fields.size() - 1) + 1;
  int64_t pages = 0;
  std::from_chars(fields.data() + second, fields.data() + fields.size(), pages);
  return pages * ::sysconf(_SC_PAGESIZE);
}

HeapTrim::Books books() {
  const struct mallinfo2 heap = mallinfo2();
  return {.used_bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd),
          .free_bytes = static_cast<int64_t>(heap.fordblks)};
}

}  // namespace

HeapTrim::HeapTrim(const Options& options)
    : options_(options),
      settled_(resident_bytes()),
      looked_(steady_clock::now()),
      patience_(options_.books_interval),
      thread_({.name = "pelton-heap", .interval = options_.interval}, [this] { look(); }) {
  ::mallopt(M_MMAP_THRESHOLD, kOwnMappingBytes);
  ::mallopt(M_TRIM_THRESHOLD, kEndBytesKept);
}

// Half as much as is in use will be needed again by what thousands of streams do all the time.
bool HeapTrim::worth_it(const Books& books) {
  return books.free_bytes > std::max(kFreeBytesKept, books.used_bytes / 2);
}

// What has just been asked for in large pieces is mostly still in use when it is first seen, and
// may be half given back when it is seen next: so it is looked for again soon, and then less and
// less often.
void HeapTrim::look() {
  const auto now = steady_clock::now();
  const bool rose = resident_bytes() >= settled_ + kRiseBytes;
  if (!rose && now - looked_ < patience_) return;
  if (worth_it(books())) ::malloc_trim(kTopBytesKept);
  settled_ = resident_bytes();
  looked_ = now;
  patience_ = rose ? options_.interval : std::min(2 * patience_, options_.books_interval);
}

}  // namespace pelton::base
