#include "tokenizer/merge_table.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace pelton::tokenizer {

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(merges * 2 + 2), kEmpty) {
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
}

bool MergeTable::put(uint64_t pair, uint32_t rank) {
  CHECK(size_ * 2 < slots_.size());
  size_t slot = slot_of(pair);
  while (slots_[slot] != kEmpty) {
    if (slots_[slot] >> kIdBits == pair) return false;
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = pair << kIdBits | rank;
  ++size_;
  return true;
}

bool MergeTable::add(TokenId left, TokenId right, TokenId merged) {
  CHECK(merged_.size() < static_cast<size_t>(kTokenIdsMax));
  if (!put(pack(left, right), static_cast<uint32_t>(merged_.size()))) return false;
  merged_.push_back(merged);
  return true;
}

// `order`: ids by rank; empty: ids are ranks.
MergeTable MergeTable::of_pairs(const TokenBytes& tokens, const TokenLookup& lookup,
                                std::span<const TokenId> order) {
  struct Found {
    uint64_t pair;
    uint32_t rank;
  };
  std::vector<Found> found;
  found.reserve(static_cast<size_t>(tokens.size()) * 3);
  for (int rank = 0; rank < tokens.size(); ++rank) {
    const TokenId id = order.empty() ? rank : order[static_cast<size_t>(rank)];
    const std::string_view bytes = tokens[id];
    if (bytes.empty() || lookup.find(tokens, bytes) != id) continue;  // no ordinary token
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const TokenId left = lookup.find(tokens, bytes.substr(0, cut));
      if (left == kNoToken) continue;
      const TokenId right = lookup.find(tokens, bytes.substr(cut));
      if (right == kNoToken) continue;
      found.push_back({pack(left, right), static_cast<uint32_t>(rank)});
    }
  }
  MergeTable table(found.size());
  for (const Found& merge : found) CHECK(table.put(merge.pair, merge.rank));
  return table;
}

MergeTable MergeTable::of_ranks(const TokenBytes& tokens, const TokenLookup& lookup) {
  return of_pairs(tokens, lookup, {});
}

MergeTable MergeTable::of_order(const TokenBytes& tokens, const TokenLookup& lookup,
                                std::vector<TokenId> order) {
  MergeTable table = of_pairs(tokens, lookup, order);
  table.merged_ = std::move(order);
  return table;
}

}  // namespace pelton::tokenizer
