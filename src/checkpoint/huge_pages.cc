#include "checkpoint/huge_pages.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/machine.h"

namespace pelton::checkpoint {

bool HugePages::are_worth_it() {
  return base::has_huge_pages_on_request() && base::has_one_memory_node();
}

HugePages::HugePages(const Checkpoint& checkpoint, WeightPieces pieces)
    : pieces_(movable_weight_pieces(checkpoint, std::move(pieces))) {}

Result<void> HugePages::move(int64_t bytes) {
  for (int64_t moved = 0; moved < bytes && !done(); ++next_) {
    const WeightPiece& piece = pieces_[next_];
    if (const int code = move_to_own_memory(piece, FilePages::kKeep); code != 0) {
      return Error{ErrorCode::kIo,
                   fmt::format("{}: {} bytes at {} stay in small pages: {}", piece.file->path(),
                               piece.bytes, piece.begin, std::strerror(code))};
    }
    // Where there is swap it must not go there. Refused: as the system likes.
    ::mlock2(piece.file->bytes().data() + piece.begin, static_cast<size_t>(piece.bytes),
             MLOCK_ONFAULT);
    moved += piece.bytes;
    moved_bytes_ += piece.bytes;
  }
  return {};
}

void HugePages::give_back() {
  // What cannot be mapped stays in memory of our own, with the same bytes.
  for (size_t i = 0; i < next_; ++i) map_file_again(pieces_[i]);
  next_ = 0;
  moved_bytes_ = 0;
}

}  // namespace pelton::checkpoint
