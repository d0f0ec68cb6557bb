#include "tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace pelton::tokenizer {
namespace {

// Up to here looking through all pairs for the lowest rank beats keeping a heap of them.
constexpr size_t kShortBytes = 96;
// Positions are 32-bit numbers and there are up to three heap entries a byte. A longer piece is
// cut.
constexpr size_t kPieceBytesMax = size_t{1} << 30;

constexpr uint32_t kNoMerge = MergeTable::kNoMerge;

// The parts of a long piece, each named by its first byte's position, as a doubly linked list; and
// a heap of the merges that were possible when they were pushed.
class LongPiece {
 public:
  LongPiece(size_t size, const MergeTable& merges)
      : merges_(merges), parts_(size), last_(static_cast<uint32_t>(size - 1)) {}

  void set(size_t i, TokenId token, uint32_t rank) {
    const uint32_t at = static_cast<uint32_t>(i);
    parts_[i] = {token, at - 1, at + 1, rank};
    if (rank != kNoMerge) heap_.push_back(entry(rank, at));
  }

  void merge_all() {
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t lowest = heap_.back();
      heap_.pop_back();
      const uint32_t at = static_cast<uint32_t>(lowest);
      const uint32_t rank = static_cast<uint32_t>(lowest >> 32);
      // Stale if the pair has gone or become another since.
      if (parts_[at].rank == rank) merge(at);
    }
  }

  void append_to(std::vector<TokenId>& out) const {
    for (size_t i = 0; i < parts_.size(); i = parts_[i].next) out.push_back(parts_[i].token);
  }

 private:
  struct Part {
    TokenId token;
    uint32_t previous;
    uint32_t next;
    uint32_t rank;  // of merging with `next`; kNoMerge also for a part that is no more
  };

  static uint64_t entry(uint32_t rank, uint32_t at) { return uint64_t{rank} << 32 | at; }

  void merge(uint32_t at) {
    Part& part = parts_[at];
    part.token = merges_.merged(part.rank);
    Part& gone = parts_[part.next];
    gone.rank = kNoMerge;
    part.next = gone.next;
    if (part.next <= last_) parts_[part.next].previous = at;
    rank_again(at);
    if (at > 0) rank_again(part.previous);
  }

  void rank_again(uint32_t at) {
    Part& part = parts_[at];
    part.rank = part.next > last_ ? kNoMerge : merges_.rank(part.token, parts_[part.next].token);
    if (part.rank == kNoMerge) return;
    heap_.push_back(entry(part.rank, at));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  const MergeTable& merges_;
  std::vector<Part> parts_;
  const uint32_t last_;
  std::vector<uint64_t> heap_;  // rank, then position: the leftmost of equals comes first
};

}  // namespace

BytePairEncoder::BytePairEncoder(const std::array<TokenId, 256>& byte_tokens, MergeTable merges)
    : byte_tokens_(byte_tokens), merges_(std::move(merges)), byte_pair_rank_(256) {
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      byte_pair_rank_[left][right] = merges_.rank(byte_tokens_[left], byte_tokens_[right]);
    }
  }
}

void BytePairEncoder::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() <= kShortBytes) {
    encode_short(piece, out);
  } else {
    encode_long(piece, out);
  }
}

void BytePairEncoder::encode_short(std::string_view piece, std::vector<TokenId>& out) const {
  TokenId tokens[kShortBytes];
  uint32_t ranks[kShortBytes];  // of merging with the next
  if (piece.empty()) return;
  size_t last = piece.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    tokens[i] = byte_tokens_[static_cast<uint8_t>(piece[i])];
    ranks[i] = i < last ? byte_pair_rank(piece, i) : kNoMerge;
  }
  while (last > 0) {
    const size_t at = static_cast<size_t>(std::min_element(ranks, ranks + last) - ranks);
    if (ranks[at] == kNoMerge) break;
    tokens[at] = merges_.merged(ranks[at]);
    std::memmove(tokens + at + 1, tokens + at + 2, (last - at - 1) * sizeof tokens[0]);
    std::memmove(ranks + at + 1, ranks + at + 2, (last - at - 1) * sizeof ranks[0]);
    --last;
    ranks[at] = at < last ? merges_.rank(tokens[at], tokens[at + 1]) : kNoMerge;
    if (at > 0) ranks[at - 1] = merges_.rank(tokens[at - 1], tokens[at]);
  }
  out.insert(out.end(), tokens, tokens + last + 1);
}

void BytePairEncoder::encode_long(std::string_view piece, std::vector<TokenId>& out) const {
  while (!piece.empty()) {
    const std::string_view cut = piece.substr(0, kPieceBytesMax);
    LongPiece long_piece(cut.size(), merges_);
    for (size_t i = 0; i < cut.size(); ++i) {
      long_piece.set(i, byte_tokens_[static_cast<uint8_t>(cut[i])],
                     i + 1 < cut.size() ? byte_pair_rank(cut, i) : kNoMerge);
    }
    long_piece.merge_all();
    long_piece.append_to(out);
    piece.remove_prefix(cut.size());
  }
}

}  // namespace pelton::tokenizer
