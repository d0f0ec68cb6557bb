#include "net/send_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::net {
namespace {

constexpr size_t kJoinedBytesMax = 16 * 1024;
// One large answer must not hold memory for good.
constexpr size_t kBorrowedBytesKept = 64 * 1024;
constexpr size_t kPiecesKept = 4;

}  // namespace

void SendQueue::borrow(std::string& buffer) {
  CHECK(borrowed_ == nullptr && buffer.empty());
  if (empty()) borrowed_ = &buffer;
}

void SendQueue::give_back() {
  if (borrowed_ == nullptr) return;
  if (!borrowed_->empty()) {
    pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(first_),
                   borrowed_->substr(first_offset_));
    first_offset_ = 0;
    borrowed_->clear();
  }
  if (borrowed_->capacity() > kBorrowedBytesKept) std::string().swap(*borrowed_);
  borrowed_ = nullptr;
}

void SendQueue::push(std::string_view bytes) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  const bool has_pieces = first_ < pieces_.size();
  if (borrowed_ != nullptr && !has_pieces) {
    borrowed_->append(bytes);
  } else if (has_pieces && pieces_.back().size() + bytes.size() <= kJoinedBytesMax) {
    pieces_.back() += bytes;
  } else {
    pieces_.emplace_back(bytes);
  }
}

void SendQueue::push(std::string&& bytes) {
  if (bytes.size() <= kJoinedBytesMax / 4) return push(std::string_view(bytes));
  bytes_ += bytes.size();
  pieces_.push_back(std::move(bytes));
}

void SendQueue::push_framed(std::string_view before, std::string_view bytes,
                            std::string_view after) {
  if (borrowed_ == nullptr || first_ < pieces_.size()) {
    push(before);
    push(bytes);
    return push(after);
  }
  bytes_ += before.size() + bytes.size() + after.size();
  borrowed_->append(before).append(bytes).append(after);
}

size_t SendQueue::front(std::span<std::string_view, kPiecesMax> views) const {
  size_t count = 0;
  if (is_borrowing()) views[count++] = *borrowed_;
  for (size_t i = first_; i < pieces_.size() && count < kPiecesMax; ++i)
    views[count++] = pieces_[i];
  if (count > 0) views[0].remove_prefix(first_offset_);
  return count;
}

std::string_view SendQueue::only_piece() const {
  const size_t own = pieces_.size() - first_;
  if (own > 1 || (own == 1 && is_borrowing())) return {};
  std::string_view piece;
  if (is_borrowing()) piece = *borrowed_;
  if (own == 1) piece = pieces_[first_];
  return piece.substr(std::min(first_offset_, piece.size()));
}

void SendQueue::pop(size_t bytes) {
  CHECK(bytes <= bytes_);
  bytes_ -= bytes;
  while (bytes > 0) {
    const bool borrowing = is_borrowing();
    const size_t left = (borrowing ? *borrowed_ : pieces_[first_]).size() - first_offset_;
    if (bytes < left) {
      first_offset_ += bytes;
      return;
    }
    bytes -= left;
    first_offset_ = 0;
    borrowing ? borrowed_->clear() : drop_first_piece();
  }
}

void SendQueue::drop_first_piece() {
  std::string().swap(pieces_[first_++]);
  if (first_ < pieces_.size()) {
    // Rarely, so that a long queue is moved but a few times.
    if (first_ < kPiecesMax || first_ < pieces_.size() / 2) return;
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
  } else if (pieces_.capacity() > kPiecesKept) {
    std::vector<std::string>().swap(pieces_);
  } else {
    pieces_.clear();
  }
  first_ = 0;
}

void SendQueue::clear() {
  if (borrowed_ != nullptr) borrowed_->clear();
  pieces_.clear();
  first_ = first_offset_ = bytes_ = 0;
}

}  // namespace pelton::net
