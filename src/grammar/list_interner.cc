#include "grammar/list_interner.h"

#include <algorithm>

namespace pelton::grammar {

ListInterner::ListInterner() : buckets_(64, 0) {}

uint32_t ListInterner::number_of(std::span<const uint64_t> list) {
  uint64_t hash = list.size() + 1;
  for (const uint64_t x : list) {
    hash = (hash ^ x) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  const size_t mask = buckets_.size() - 1;
  size_t at = hash & mask;
  for (; buckets_[at] != 0; at = (at + 1) & mask) {
    const uint32_t number = buckets_[at] - 1;
    if (hashes_[number] != hash) continue;
    const std::span<const uint64_t> known = this->list(number);
    if (std::equal(known.begin(), known.end(), list.begin(), list.end())) return number;
  }
  const uint32_t number = size();
  buckets_[at] = number + 1;
  hashes_.push_back(hash);
  pool_.insert(pool_.end(), list.begin(), list.end());
  begins_.push_back(static_cast<uint32_t>(pool_.size()));
  if (hashes_.size() * 2 > buckets_.size()) grow();
  return number;
}

void ListInterner::grow() {
  buckets_.assign(buckets_.size() * 4, 0);
  const size_t mask = buckets_.size() - 1;
  for (uint32_t number = 0; number < size(); ++number) {
    size_t at = hashes_[number] & mask;
    while (buckets_[at] != 0) at = (at + 1) & mask;
    buckets_[at] = number + 1;
  }
}

}  // namespace pelton::grammar
