// Which two neighbouring tokens merge into one, and how early: a flat open-addressed table of
// pairs, eight bytes each. Immutable once filled; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/token_bytes.h"
#include "tokenizer/token_lookup.h"

namespace pelton::tokenizer {

class MergeTable {
 public:
  static constexpr uint32_t kNoMerge = UINT32_MAX;

  // Ids are ranks: two neighbours merge if their bytes together are a token, and its id is the
  // rank.
  static MergeTable of_ranks(const TokenBytes& tokens, const TokenLookup& lookup);
  // The same where the rank is the token's place in `order`, which holds every id once.
  static MergeTable of_order(const TokenBytes& tokens, const TokenLookup& lookup,
                             std::vector<TokenId> order);

  // Room for at most `merges` pairs.
  explicit MergeTable(size_t merges);

  // The rank is the number of merges added before. False if the pair is there already.
  [[nodiscard]] bool add(TokenId left, TokenId right, TokenId merged);

  // The lower, the earlier; kNoMerge if the two do not merge.
  uint32_t rank(TokenId left, TokenId right) const {
    const uint64_t pair = pack(left, right);
    for (size_t slot = slot_of(pair);; slot = (slot + 1) & mask_) {
      const uint64_t found = slots_[slot];
      if (found >> kIdBits == pair) return static_cast<uint32_t>(found & kIdMask);
      if (found == kEmpty) return kNoMerge;
    }
  }

  TokenId merged(uint32_t rank) const {
    return merged_.empty() ? static_cast<TokenId>(rank) : merged_[rank];
  }

  size_t size() const { return size_; }

 private:
  static constexpr int kIdBits = 21;
  static constexpr uint64_t kIdMask = (uint64_t{1} << kIdBits) - 1;
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no pair: its top bit is set
  static_assert(kTokenIdsMax <= 1 << kIdBits);

  static uint64_t pack(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << kIdBits | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const {
    return static_cast<size_t>((pair * 0x9E3779B97F4A7C15ull) >> shift_);
  }
  bool put(uint64_t pair, uint32_t rank);

  std::vector<uint64_t> slots_;  // left, right, rank
  size_t mask_;
  int shift_;
  size_t size_ = 0;
  std::vector<TokenId> merged_;  // by rank; empty if ids are ranks

  static MergeTable of_pairs(const TokenBytes& tokens, const TokenLookup& lookup,
                             std::span<const TokenId> order);
};

}  // namespace pelton::tokenizer
