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

// The least of `count` keys; those up to the next multiple of four are looked at too. (Not in
// vectors: what was just written key by key would have to reach memory before it can be read so.)
#if __has_cpp_attribute(gnu::optimize)
[[gnu::optimize("no-tree-vectorize")]]
#endif
int32_t
least_of(const int32_t* keys, size_t count) {
  int32_t least[4] = {keys[0], keys[1], keys[2], keys[3]};
  for (size_t i = 4; i < count; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) least[lane] = std::min(least[lane], keys[i + lane]);
  }
  return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
}

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

void BytePairEncoder::merge(std::span<const TokenId> parts, std::vector<TokenId>& out) const {
  while (!parts.empty()) {
    const std::span<const TokenId> cut = parts.first(std::min(parts.size(), kPieceBytesMax));
    LongPiece long_piece(cut.size(), merges_);
    for (size_t i = 0; i < cut.size(); ++i) {
      long_piece.set(i, cut[i], i + 1 < cut.size() ? merges_.rank(cut[i], cut[i + 1]) : kNoMerge);
    }
    long_piece.merge_all();
    long_piece.append_to(out);
    parts = parts.subspan(cut.size());
  }
}

// Parts stay where their first byte is. A part's key is the rank of merging it with the next one,
// and its position below: the least key of all is the next merge, the leftmost of equals. Parts
// that are no more, and the last one, have the greatest key.
void BytePairEncoder::encode_short(std::string_view piece, std::vector<TokenId>& out) const {
  constexpr int kPositionBits = 7;
  static_assert(kShortBytes <= 1 << kPositionBits);
  static_assert(int64_t{kTokenIdsMax} << kPositionBits < INT32_MAX);
  constexpr int kSpare = 4;  // least_of
  int32_t keys[kShortBytes + kSpare];
  TokenId tokens[kShortBytes];
  uint8_t next[kShortBytes + 1];
  uint8_t previous[kShortBytes + 1];
  const auto key = [](uint32_t rank, size_t at) {
    return rank == kNoMerge ? INT32_MAX : static_cast<int32_t>(rank << kPositionBits | at);
  };

  const size_t size = piece.size();
  if (size == 0) return;
  for (size_t i = 0; i < size; ++i) {
    tokens[i] = byte_tokens_[static_cast<uint8_t>(piece[i])];
    keys[i] = i + 1 < size ? key(byte_pair_rank(piece, i), i) : INT32_MAX;
    next[i] = static_cast<uint8_t>(i + 1);
    previous[i + 1] = static_cast<uint8_t>(i);
  }
  std::fill_n(keys + size, kSpare, INT32_MAX);
  for (;;) {
    const int32_t least = least_of(keys, size);
    if (least == INT32_MAX) break;
    const size_t at = static_cast<size_t>(least) & ((1 << kPositionBits) - 1);
    const size_t gone = next[at];
    const size_t after = next[gone];
    tokens[at] = merges_.merged(static_cast<uint32_t>(least) >> kPositionBits);
    keys[gone] = INT32_MAX;
    next[at] = static_cast<uint8_t>(after);
    previous[after] = static_cast<uint8_t>(at);
    keys[at] = after < size ? key(merges_.rank(tokens[at], tokens[after]), at) : INT32_MAX;
    if (at > 0) {
      const size_t before = previous[at];
      keys[before] = key(merges_.rank(tokens[before], tokens[at]), before);
    }
  }
  for (size_t i = 0; i < size; i = next[i]) out.push_back(tokens[i]);
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
