#include "node/weight_sums.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace pelton::node {
namespace {

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15ull;

// For one word all of it can be undone, so two words that differ never give the same; and what one
// bit changes is too much for one bit of the next word to change back.
uint64_t mixed(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * kOdd;
  return sum ^ (sum >> 32);
}

}  // namespace

// Four lanes: the processor multiplies several at a time, and memory is the bound.
uint64_t weight_sum(std::span<const uint8_t> bytes) {
  std::array<uint64_t, 4> lanes = {1, 2, 3, 4};
  size_t at = 0;
  for (; at + sizeof(lanes) <= bytes.size(); at += sizeof(lanes)) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), bytes.data() + at, sizeof(words));
    for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  uint64_t sum = bytes.size();
  for (; at < bytes.size(); ++at) sum = mixed(sum, bytes[at]);
  for (const uint64_t lane : lanes) sum = mixed(sum, lane);
  return sum;
}

WeightSums::WeightSums(const checkpoint::WeightRanges& ranges) {
  for (const checkpoint::WeightRange& range : ranges) {
    for (size_t at = 0; at < range.bytes.size(); at += kPieceBytes) {
      const size_t count = std::min(kPieceBytes, range.bytes.size() - at);
      pieces_.push_back({.tensor = range.tensor,
                         .at = range.at + static_cast<int64_t>(at),
                         .bytes = range.bytes.subspan(at, count),
                         .sum = std::nullopt});
      bytes_ += static_cast<int64_t>(count);
    }
  }
}

WeightSums::Look WeightSums::look() {
  if (pieces_.empty()) return {};
  Piece& piece = pieces_[next_];
  next_ = (next_ + 1) % pieces_.size();
  const uint64_t sum = weight_sum(piece.bytes);
  Look look{.bytes = static_cast<int64_t>(piece.bytes.size()),
            .known = piece.sum.has_value(),
            .changed = {}};
  if (!piece.sum) {
    piece.sum = sum;
    ++known_;
  } else if (*piece.sum != sum) {
    look.changed =
        fmt::format("{}, bytes {} to {}", piece.tensor, piece.at, piece.at + look.bytes - 1);
  }
  return look;
}

}  // namespace pelton::node
