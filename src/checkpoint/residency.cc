#include "checkpoint/residency.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/machine.h"

namespace pelton::checkpoint {
namespace {

constexpr int kReaders = 4;  // reads in flight; more gain nothing here
// How often the memory that is left is looked at, which takes some 20 us: every GiB.
constexpr size_t kPiecesALook = 64;
constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14

uint8_t* address_of(const WeightPiece& piece) {
  return const_cast<uint8_t*>(piece.file->bytes().data()) + piece.begin;
}

// Zero, or an errno. Unlike a touch, madvise answers a file that has become shorter with an error
// and not with a signal.
int populate(const WeightPiece& piece, bool must_be_locked) {
  // A mapping begins at a page, and so does each piece.
  auto* begin = address_of(piece);
  const auto bytes = static_cast<size_t>(piece.bytes);
  if (::madvise(begin, bytes, kPopulateRead) == 0) return 0;
  if (errno != EINVAL) return errno;
  // An older kernel. Either all is read now,
  if (must_be_locked) return ::mlock(begin, bytes) == 0 ? 0 : errno;
  // or it knows what is coming; the pages are mapped (and locked, if so) when they are used.
  ::madvise(begin, bytes, MADV_WILLNEED);
  return 0;
}

class Reading {
 public:
  Reading(const WeightPieces& pieces, const LoadChoice& choice)
      : choice_(choice), pieces_(pieces), total_(mapped_bytes(pieces)) {
    start();
  }
  ~Reading() {
    next_.store(pieces_.size());  // nothing more is begun
    for (std::thread& reader : readers_) reader.join();
  }

  int64_t total() const { return total_; }
  int64_t done() const { return done_.load(); }
  bool over() const { return done() == total_ || failed_piece_.load() >= 0; }

  // Whether the lock takes too much of the machine. What another process has locked of the same
  // files costs nothing more, so only the reading shows it.
  void look() {
    if (!choice_.keep_available || shortage_.load() >= 0) return;
    const std::optional<int64_t> available = base::available_memory_bytes();
    if (!available || *available >= *choice_.keep_available) return;
    int64_t none = -1;
    if (shortage_.compare_exchange_strong(none, *available)) unlock_weights(pieces_);
  }

  Result<LoadChoice> result() const {
    const int64_t failed = failed_piece_.load();
    const int64_t short_of = shortage_.load();
    if (failed < 0) return short_of < 0 ? choice_ : without_lock(choice_, short_of);
    const WeightPiece& piece = pieces_[static_cast<size_t>(failed)];
    const int code = failed_errno_.load();
    if (code == ENOMEM) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("no memory for {} bytes of weights; --load-mode mmap needs none of "
                               "its own",
                               total_)};
    }
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: cannot read {} bytes at {}: {} (was it cut short?)",
                             piece.file->path(), piece.bytes, piece.begin, std::strerror(code)),
                 {}};
  }

 private:
  // With fewer readers, if the system refuses some, it only takes longer.
  void start() {
    readers_.reserve(kReaders);
    try {
      for (int i = 0; i < kReaders; ++i) readers_.emplace_back([this] { read(); });
    } catch (const std::exception&) {  // of the thread, or of the memory for what begins it
      if (readers_.empty()) throw;
    }
  }

  void read() {
    while (true) {
      const size_t index = next_.fetch_add(1);
      if (index >= pieces_.size()) return;
      if (index % kPiecesALook == 0) look();
      const WeightPiece& piece = pieces_[index];
      const bool must_be_locked = choice_.mode == LoadMode::kLock && !choice_.keep_available;
      const int code = choice_.mode == LoadMode::kRead ? move_to_own_memory(piece, FilePages::kDrop)
                                                       : populate(piece, must_be_locked);
      if (code != 0) {
        failed_errno_.store(code);
        failed_piece_.store(static_cast<int64_t>(index));
        return;
      }
      done_.fetch_add(piece.bytes);
    }
  }

  const LoadChoice choice_;
  const WeightPieces& pieces_;
  const int64_t total_;
  std::atomic<size_t> next_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> failed_piece_{-1};
  std::atomic<int> failed_errno_{0};
  std::atomic<int64_t> shortage_{-1};  // what was available when the lock was given up
  std::vector<std::thread> readers_;
};

// The choice that is left after asking for the lock, if it is one.
Result<LoadChoice> take_lock(const WeightPieces& pieces, const LoadChoice& choice) {
  if (choice.mode != LoadMode::kLock) return choice;
  const Result<void> locked = lock_weights(pieces);
  if (locked.ok()) return choice;
  if (choice.keep_available) return without_lock(choice, locked.error().message);
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("{} bytes of weights may not be locked into memory ({}); raise "
                           "`ulimit -l`, or use --load-mode mmap or read",
                           mapped_bytes(pieces), locked.error().message)};
}

}  // namespace

void unlock_weights(const WeightPieces& pieces) {
  for (const WeightPiece& piece : pieces) {
    // Not munlock(): the sanitizers make that do nothing.
    ::syscall(SYS_munlock, address_of(piece), piece.bytes);
  }
}

Result<void> lock_weights(const WeightPieces& pieces) {
  for (const WeightPiece& piece : pieces) {
    // It keeps other threads from mapping pages meanwhile: 12.6 GiB that were there took 0.3 s.
    const auto bytes = static_cast<size_t>(piece.bytes);
    if (::mlock2(address_of(piece), bytes, MLOCK_ONFAULT) == 0) continue;
    const int code = errno;
    unlock_weights(pieces);
    return Error{ErrorCode::kDoesNotFit, std::strerror(code)};
  }
  return {};
}

Result<LoadChoice> read_weights(const WeightPieces& pieces, const LoadChoice& choice,
                                ReadProgress progress) {
  TRY_ASSIGN(const LoadChoice taken, take_lock(pieces, choice));
  if (!taken.ahead) return taken;
  Reading reading(pieces, taken);
  for (int turn = 0; !reading.over(); ++turn) {
    // The first looks are close together: a model in memory already is mapped within milliseconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(turn < 20 ? 1 : 50));
    if (!progress(reading.done(), reading.total())) {
      return Error{ErrorCode::kCancelled, "interrupted while reading the weights", {}};
    }
  }
  reading.look();
  return reading.result();
}

void drop_other_pages(const Checkpoint& checkpoint, const WeightPieces& pieces) {
  size_t next = 0;
  for (const base::MappedFile& file : checkpoint.files()) {
    auto* const data = const_cast<uint8_t*>(file.bytes().data());
    const auto drop = [&](int64_t begin, int64_t end) {
      if (begin < end) ::madvise(data + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
    };
    int64_t begin = 0;
    for (; next < pieces.size() && pieces[next].file == &file; ++next) {
      drop(begin, pieces[next].begin);
      begin = pieces[next].begin + pieces[next].bytes;
    }
    drop(begin, std::ssize(file.bytes()));
  }
}

}  // namespace pelton::checkpoint
