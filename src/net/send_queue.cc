#include "net/send_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::net {
namespace {

constexpr size_t kJoinedBytesMax = 16 * 1024;

}  // namespace

void SendQueue::push(std::string_view bytes, size_t following) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  const bool joinable =
      pieces_.size() > in_flight_ && pieces_.back().size() + bytes.size() <= kJoinedBytesMax;
  if (joinable) {
    pieces_.back() += bytes;
  } else {
    std::string& piece = pieces_.emplace_back();
    piece.reserve(bytes.size() + std::min(following, kJoinedBytesMax));
    piece += bytes;
  }
}

void SendQueue::push(std::string&& bytes) {
  if (bytes.size() <= kJoinedBytesMax / 4) return push(std::string_view(bytes));
  bytes_ += bytes.size();
  pieces_.push_back(std::move(bytes));
}

std::vector<std::string_view> SendQueue::front() {
  std::vector<std::string_view> views;
  in_flight_ = std::min(pieces_.size(), kPiecesMax);
  for (size_t i = 0; i < in_flight_; ++i) {
    views.push_back(std::string_view(pieces_[i]).substr(i == 0 ? first_offset_ : 0));
  }
  return views;
}

void SendQueue::pop(size_t bytes) {
  CHECK(bytes <= bytes_);
  bytes_ -= bytes;
  in_flight_ = 0;
  while (bytes > 0) {
    const size_t left = pieces_.front().size() - first_offset_;
    if (bytes < left) {
      first_offset_ += bytes;
      return;
    }
    bytes -= left;
    first_offset_ = 0;
    pieces_.pop_front();
  }
}

void SendQueue::clear() {
  pieces_.clear();
  first_offset_ = in_flight_ = bytes_ = 0;
}

}  // namespace pelton::net
