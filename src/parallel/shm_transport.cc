#include "parallel/shm_transport.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/spin.h"

namespace pelton::parallel {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHeadBytes = 2 * kLine;
constexpr size_t kPage = 4096;
constexpr int64_t kSleepNs = 100'000'000;  // between looks at the clock

Error no(const char* what) {
  return Error{ErrorCode::kIo, fmt::format("shared memory: {}: {}", what, std::strerror(errno))};
}

// The first line is the group's, then each rank's head.
size_t heads_bytes(int ranks) {
  const size_t bytes = kLine + static_cast<size_t>(ranks) * kHeadBytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

size_t file_bytes(int ranks, size_t part_bytes) {
  return heads_bytes(ranks) + 2 * static_cast<size_t>(ranks) * part_bytes;
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, int64_t ns) {
  const timespec limit{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

struct ShmTransport::Head {
  alignas(kLine) std::atomic<uint32_t> published;  // the last round; compared as it wraps
  alignas(kLine) std::atomic<uint32_t> sleepers;
};

Result<int> ShmTransport::make_file(int ranks, size_t part_bytes) {
  const int file = ::memfd_create("pelton-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return no("memfd_create");
  const bool made = ::ftruncate(file, static_cast<off_t>(file_bytes(ranks, part_bytes))) == 0 &&
                    ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (made) return file;
  const Error error = no("ftruncate");
  ::close(file);
  return error;
}

Result<std::unique_ptr<ShmTransport>> ShmTransport::map(int file, const Options& options) {
  CHECK(options.part_bytes % kPage == 0);
  static_assert(sizeof(Head) == kHeadBytes);
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  const size_t bytes = file_bytes(options.ranks, options.part_bytes);
  struct stat status {};
  if (::fstat(file, &status) != 0) return no("fstat");
  if (static_cast<size_t>(status.st_size) != bytes) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("shared memory has {} bytes, not {}", status.st_size, bytes)};
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return no("mmap");
  return std::unique_ptr<ShmTransport>(new ShmTransport(options, memory, bytes));
}

ShmTransport::ShmTransport(const Options& options, void* memory, size_t bytes)
    : options_(options), memory_(memory), bytes_(bytes) {}

ShmTransport::~ShmTransport() {
  ::munmap(memory_, bytes_);
}

ShmTransport::Head& ShmTransport::head(int rank) const {
  auto* const bytes = static_cast<std::byte*>(memory_);
  return *reinterpret_cast<Head*>(bytes + kLine + static_cast<size_t>(rank) * kHeadBytes);
}

std::byte* ShmTransport::part(int rank, uint32_t round) const {
  const size_t index = 2 * static_cast<size_t>(rank) + round % 2;
  return static_cast<std::byte*>(memory_) + heads_bytes(options_.ranks) +
         index * options_.part_bytes;
}

bool ShmTransport::is_aborted() const {
  return static_cast<std::atomic<uint32_t>*>(memory_)->load(std::memory_order_relaxed) != 0;
}

std::byte* ShmTransport::own_part() {
  return part(options_.rank, round_ + 1);
}

void ShmTransport::publish(size_t bytes) {
  CHECK(bytes <= options_.part_bytes);
  Head& own = head(options_.rank);
  ++round_;
  // Sequentially consistent with a reader's `sleepers`: either it sees the round before it sleeps,
  // or we see that it does.
  own.published.store(round_);
  if (own.sleepers.load() > 0) wake(own.published);
}

const std::byte* ShmTransport::part_of(int rank, size_t bytes) {
  CHECK(bytes <= options_.part_bytes);
  return wait_for(rank) ? part(rank, round_) : nullptr;
}

bool ShmTransport::wait_for(int rank) {
  Head& other = head(rank);
  const auto is_there = [&] {
    return static_cast<int32_t>(other.published.load(std::memory_order_acquire) - round_) >= 0;
  };
  if (is_there()) return true;
  const int64_t begin_ns = now_ns();
  for (int turn = 0; now_ns() - begin_ns < options_.spin_ns; ++turn) {
    for (int i = 0; i < 32; ++i) {
      if (is_there()) return true;
      base::spin_pause();
    }
    if (is_aborted()) return false;
  }
  other.sleepers.fetch_add(1);
  bool there = false;
  // Time in which this process did not run is nobody's delay.
  for (int64_t waited_ns = 0; !is_aborted() && waited_ns < options_.patience_ns;) {
    const uint32_t seen = other.published.load();
    there = static_cast<int32_t>(seen - round_) >= 0;
    if (there) break;
    const int64_t sleep_begin_ns = now_ns();
    sleep_on(other.published, seen, kSleepNs);
    waited_ns += std::min(now_ns() - sleep_begin_ns, kSleepNs);
  }
  other.sleepers.fetch_sub(1);
  return there;
}

void ShmTransport::abort() {
  static_cast<std::atomic<uint32_t>*>(memory_)->store(1);
  for (int rank = 0; rank < options_.ranks; ++rank) wake(head(rank).published);
}

}  // namespace pelton::parallel
