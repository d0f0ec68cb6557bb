#include "tokenizer/merge_table.h"

#include <bit>

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

MergeTable MergeTable::of_ranks(const TokenBytes& tokens, const TokenLookup& lookup) {
  struct Found {
    uint64_t pair;
    uint32_t rank;
  };
  std::vector<Found> found;
  found.reserve(static_cast<size_t>(tokens.size()) * 3);
  for (TokenId id = 0; id < tokens.size(); ++id) {
    const std::string_view bytes = tokens[id];
    if (bytes.empty() || lookup.find(tokens, bytes) != id) continue;  // no ordinary token
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const TokenId left = lookup.find(tokens, bytes.substr(0, cut));
      if (left == kNoToken) continue;
      const TokenId right = lookup.find(tokens, bytes.substr(cut));
      if (right == kNoToken) continue;
      found.push_back({pack(left, right), static_cast<uint32_t>(id)});
    }
  }
  MergeTable table(found.size());
  for (const Found& merge : found) CHECK(table.put(merge.pair, merge.rank));
  return table;
}

}  // namespace pelton::tokenizer
