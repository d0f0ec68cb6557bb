#include "checkpoint/residency.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pelton::checkpoint {
namespace {

constexpr int kReaders = 4;  // reads in flight; more gain nothing here
constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14

struct Piece {
  const base::MappedFile* file;
  int64_t begin;
  int64_t bytes;
};

std::vector<Piece> pieces_of(const Checkpoint& checkpoint) {
  std::vector<Piece> pieces;
  for (const base::MappedFile& file : checkpoint.files()) {
    const auto size = static_cast<int64_t>(file.bytes().size());
    for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
      pieces.push_back({&file, begin, std::min(kPieceBytes, size - begin)});
    }
  }
  return pieces;
}

// Zero, or an errno. Unlike a touch, madvise answers a file that has become shorter with an error
// and not with a signal.
int populate(const Piece& piece) {
  // A mapping begins at a page, and so does each piece.
  auto* begin = const_cast<uint8_t*>(piece.file->bytes().data()) + piece.begin;
  if (::madvise(begin, static_cast<size_t>(piece.bytes), kPopulateRead) == 0) return 0;
  if (errno != EINVAL) return errno;
  // An older kernel: tell it what is coming; the pages are mapped when they are used.
  ::madvise(begin, static_cast<size_t>(piece.bytes), MADV_WILLNEED);
  return 0;
}

class Reading {
 public:
  explicit Reading(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    for (const Piece& piece : pieces_) total_ += piece.bytes;
    for (int i = 0; i < kReaders; ++i) readers_.emplace_back([this] { read(); });
  }
  ~Reading() {
    next_.store(pieces_.size());  // nothing more is begun
    for (std::thread& reader : readers_) reader.join();
  }

  int64_t total() const { return total_; }
  int64_t done() const { return done_.load(); }
  bool over() const { return done() == total_ || failed_piece_.load() >= 0; }

  Result<void> result() const {
    const int64_t failed = failed_piece_.load();
    if (failed < 0) return {};
    const Piece& piece = pieces_[static_cast<size_t>(failed)];
    return Error{
        ErrorCode::kBadCheckpoint,
        fmt::format("{}: cannot read {} bytes at {}: {} (was it cut short?)", piece.file->path(),
                    piece.bytes, piece.begin, std::strerror(failed_errno_.load())),
        {}};
  }

 private:
  void read() {
    while (true) {
      const size_t index = next_.fetch_add(1);
      if (index >= pieces_.size()) return;
      const int code = populate(pieces_[index]);
      if (code != 0) {
        failed_errno_.store(code);
        failed_piece_.store(static_cast<int64_t>(index));
        return;
      }
      done_.fetch_add(pieces_[index].bytes);
    }
  }

  const std::vector<Piece> pieces_;
  int64_t total_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> failed_piece_{-1};
  std::atomic<int> failed_errno_{0};
  std::vector<std::thread> readers_;
};

}  // namespace

Result<void> read_weights(const Checkpoint& checkpoint, ReadProgress progress) {
  const Reading reading(pieces_of(checkpoint));
  for (int turn = 0; !reading.over(); ++turn) {
    // The first looks are close together: a model in memory already is mapped within milliseconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(turn < 20 ? 1 : 50));
    if (!progress(reading.done(), reading.total())) {
      return Error{ErrorCode::kCancelled, "interrupted while reading the weights", {}};
    }
  }
  return reading.result();
}

}  // namespace pelton::checkpoint
